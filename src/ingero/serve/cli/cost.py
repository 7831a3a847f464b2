"""`ingero cost`: what GPUs cost, what of it was lost to which problem, and what fixing it saves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ingero.serve.cli.asking import of_nodes
from ingero.serve.cli.options import as_json, configured, database, one_node, whose, wide

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.serve.answers.cost import CostAnswer, CostLine, Prices
    from ingero.serve.answers.nodes_report import FleetCost
    from ingero.serve.answers.query import Range
    from ingero.serve.answers.whose import Whose

GROUPS = ("namespace", "job", "user", "pod", "owner", "container", "node", "process")
EPILOG = """\b
Examples:
  ingero cost --price 2.49                    the last recording, by namespace, job or user
  ingero cost --since 24h --by user
  ingero cost --by pod --namespace team-a --json
  ingero cost --nodes @nodes.txt --since 24h  of all nodes together
"""


@click.command(epilog=EPILOG)
@click.option("--price", type=click.FloatRange(0, 1e6), metavar="X", help="Price of a GPU for an hour.")
@click.option(
    "--by", type=click.Choice(GROUPS), metavar="WHAT",
    help=f"Group by: {', '.join(GROUPS)}.  [the first that is known]",
)  # fmt: skip
@click.option("--since", "--last", metavar="D", help="Only the last D, e.g. 90s, 5m, 24h.")
@click.option("--from", "start", metavar="T", help="Only from this time on, e.g. 2026-03-01T02:15.")
@click.option("--to", "end", metavar="T", help="Only up to this time.")
@one_node
@whose
@of_nodes
@as_json
@wide
@database
@configured
def cost(config: Config, as_json: bool, **flags: Any) -> int:
    """Show what GPUs cost: hours held, busy, lost to findings and idle, per tenant.

    Prices per GPU model come from the configuration (cost.prices); without a price it shows hours
    only. A shared GPU is split by how much each process used it. In every line, held is the sum of
    busy, lost, idle and unknown. With --nodes it fetches the recordings of that time and adds them up.
    """
    from ingero.serve.answers.cost import get_cost, prices_of
    from ingero.serve.answers.query import Range
    from ingero.serve.answers.whose import WORDS, Whose
    from ingero.serve.cli import output, tables

    wanted = Range(flags["since"], flags["start"], flags["end"])
    tenant = Whose(*(flags[name] for name in WORDS))
    prices = prices_of(config.cost, flags["price"])
    of_fleet = _of_nodes(config, flags, wanted, prices, tenant)
    answer = of_fleet or get_cost(flags["db"], wanted, prices, flags["by"], flags["node"], tenant)
    if as_json:
        click.echo(output.to_json(answer))
    else:
        console = tables.console(sys.stdout)
        for part in parts(answer):
            console.print(part)
    return _who_answered(of_fleet, flags["strict"], as_json) if of_fleet else 0


def _of_nodes(
    config: Config, flags: dict[str, Any], wanted: Range, prices: Prices, tenant: Whose
) -> FleetCost | None:
    """None: this machine is asked."""
    from ingero.serve.cli.asking import fleet_of

    fleet = fleet_of(config, flags, local=flags["db"] is not None)
    if fleet is None:
        return None
    from ingero.serve.answers.nodes_report import ask_fleet_cost

    return ask_fleet_cost(fleet, wanted, prices, flags["by"], flags["node"], tenant)


def _who_answered(answer: FleetCost, strict: bool, as_json: bool) -> int:
    from ingero.serve.cli.asking import exit_code, say_state

    if not as_json:
        say_state(answer.fleet)
    return exit_code(answer.fleet, strict)


def parts(answer: CostAnswer) -> list[Any]:
    """What to print, top down."""
    from rich.text import Text

    from ingero import units
    from ingero.serve import terminal
    from ingero.serve.cli import tables
    from ingero.serve.cli.fitting import Fitting

    span = f"{terminal.local_time(answer.window.from_ns)} to {terminal.local_time(answer.window.to_ns)}"
    found: list[Any] = [Text(f"{span}; {units.format_ns(answer.recorded_ns)} recorded"), Text()]
    if not answer.lines:
        return [tables.indented(each) for each in (*found, Text("No process held a GPU in that time."))]
    head = (
        answer.by.capitalize(),
        "GPUs",
        "Held",
        "Busy",
        "Lost",
        "Idle",
        "Unknown",
        "Cost",
        "Saved if fixed",
    )
    rows = [_cells(line, answer) for line in (*answer.lines, answer.total)]
    found += [
        Fitting(head, rows, left=(0, 1)),
        *_arithmetic(answer),
        *_lost(answer),
        *_efficiency(answer),
    ]
    if answer.free is not None:
        hours = terminal_hours(answer.free.held_ns)
        found.append(Text(f"Held by nobody: {hours}{_spoken(answer.free.money, answer)}"))
    if answer.estimated:
        names = ", ".join(map(terminal.clean, answer.estimated))
        found.append(
            Text(
                f"Estimated from calls, because the GPU driver did not say who used the GPU: {names}",
                "yellow",
            )
        )
    if answer.unpriced and answer.total.money is None:
        models = ", ".join(map(terminal.clean, answer.unpriced))
        found.append(Text(f"No price for {models}: give --price, or cost.prices in ingero.yaml."))
    elif answer.total.money is None:
        found.append(Text("No price is known. Give --price, or set cost.price in ingero.yaml."))
    return [tables.indented(part) for part in found]


def terminal_hours(ns: int) -> str:
    """GPU-hours; of a short recording, seconds."""
    from ingero.units import HOUR, SECOND

    return f"{ns / HOUR:,.2f} h" if ns >= HOUR // 10 else f"{ns / SECOND:,.1f} s"


def money(amount: float | None, answer: CostAnswer) -> str:
    if amount is None:
        return "-"
    from ingero.serve import terminal

    digits = 2 if amount >= 0.01 or amount == 0 else 6
    return f"{terminal.clean(answer.prices.currency)}{amount:,.{digits}f}"


def _spoken(amount: float | None, answer: CostAnswer) -> str:
    return f", {money(amount, answer)}" if amount is not None else ""


def _cells(line: CostLine, answer: CostAnswer) -> list[str]:
    from ingero.serve import terminal

    gpus = ", ".join(f"{count} {terminal.clean(model)}" for model, count in line.gpus.items())
    times = (line.held_ns, line.busy_ns, line.lost_ns, line.idle_ns, line.unknown_ns)
    return [
        terminal.clean(line.name), gpus, *map(terminal_hours, times), money(line.money, answer),
        money(line.money_lost, answer),
    ]  # fmt: skip


def _arithmetic(answer: CostAnswer) -> list[Any]:
    from rich.text import Text

    total = answer.total
    told = [
        f"busy {terminal_hours(total.busy_ns)}",
        *(f"{each.kind} {terminal_hours(each.ns)}" for each in total.lost),
        f"idle without a finding {terminal_hours(total.idle_ns)}",
        *([f"unknown {terminal_hours(total.unknown_ns)}"] if total.unknown_ns else []),
    ]
    return [Text(f"Held {terminal_hours(total.held_ns)} = {' + '.join(told)}"), Text()]


def _lost(answer: CostAnswer) -> list[Any]:
    from rich.text import Text

    from ingero.serve import terminal

    found = [
        Text(
            f"{terminal.clean(line.name)} lost {terminal_hours(each.ns)} to {each.kind}"
            f"{_spoken(each.money, answer)}"
        )
        for line in answer.lines
        for each in line.lost
    ]
    return [*found, Text()] if found else []


def _efficiency(answer: CostAnswer) -> list[Any]:
    from rich.text import Text

    from ingero.serve import terminal
    from ingero.units import format_share

    lines = []
    for line in answer.lines:
        each = line.efficiency
        told = [
            f"{words} {format_share(share)}"
            for words, share in (
                ("GPU busy", each.busy_share),
                ("SM clock", each.clock_share),
                (f"pace against its best {each.pace_against}", each.pace_share),
                (f"goodput of {each.steps} steps", each.goodput_share),
            )
            if share is not None
        ]
        if each.more_jobs is not None:
            told.append(f"{each.more_jobs} more like it would fit")
        if told:
            lines.append(Text(f"{terminal.clean(line.name)}: {', '.join(told)}"))
    return [*lines, Text()] if lines else []
