"""`ingero cost`: what GPUs cost, what of it was lost to which problem, and what fixing it saves."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import click

from ingero.serve.cli.asking import of_nodes
from ingero.serve.cli.options import as_json, configured, database, one_node, whose, wide

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from ingero.config import Config
    from ingero.serve.answers.cost import CostAnswer, CostLine, Prices
    from ingero.serve.answers.nodes_report import FleetCost
    from ingero.serve.answers.query import Range
    from ingero.serve.answers.whose import Whose

GROUPS = ("namespace", "job", "user", "pod", "owner", "container", "node", "process")
COLUMNS = ("GPUs", "Held", "Busy", "Lost", "Idle", "Unknown", "Cost", "Saved if fixed")
EPILOG = """\b
Examples:
  ingero cost --price 2.49                    the last recording, by namespace, job or user
  ingero cost --since 24h --by user
  ingero cost --by pod --namespace team-a --json
  ingero cost --nodes @nodes.txt --since 24h  of all nodes together
"""


class Price(click.FloatRange):
    """NaN is in no range, but compares as if it were in every one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a price.", param, ctx)
        return found


@click.command(epilog=EPILOG)
@click.option("--price", type=Price(0, 1e6), metavar="X", help="Price of a GPU for an hour.")
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
    told = [Told(line, answer) for line in (*answer.lines, answer.total)]
    columns = [answer.by.capitalize(), *_columns(answer)]
    found += [
        Fitting(columns, [each.cells() for each in told], left=(0, 1)),
        Sum(told[-1].terms()),
        Text(),
        *_paragraph([text for each in told[:-1] for text in each.lost()]),
        *_paragraph([text for line in answer.lines if (text := _efficiency(line))]),
    ]
    if answer.free is not None:
        free = Told(answer.free, answer)
        found.append(Text(f"Held by nobody: {free.held}{free.spoken(answer.free.money)}"))
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


def _columns(answer: CostAnswer) -> list[str]:
    """Those that say something."""
    gone = set() if answer.total.unknown_ns else {"Unknown"}
    if all(line.money is None for line in answer.lines):
        gone |= {"Cost", "Saved if fixed"}
    return [name for name in COLUMNS if name not in gone]


class Told:
    """A line in words. Its times are rounded so that as they are shown, too, they sum to what was held."""

    def __init__(self, line: CostLine, answer: CostAnswer) -> None:
        from ingero.units import HOUR, SECOND

        self._line, self._answer = line, answer
        # One unit for all: GPU-hours; of a short recording, seconds.
        long = answer.total.held_ns >= HOUR
        self._unit, self._digits = ("h", 2) if long else ("s", 1)
        step_ns = (HOUR if long else SECOND) // 10**self._digits
        busy, idle, unknown, *self._lost = rounded(
            [line.busy_ns, line.idle_ns, line.unknown_ns, *(each.ns for each in line.lost)], step_ns
        )
        held = busy + idle + unknown + sum(self._lost)
        self.held, self._busy, self._idle, self._unknown = map(self._time, (held, busy, idle, unknown))

    def _time(self, steps: int) -> str:
        return f"{steps / 10**self._digits:,.{self._digits}f} {self._unit}"

    def cells(self) -> list[str]:
        from ingero.serve import terminal

        line = self._line
        gpus = ((count, terminal.clean(model).removeprefix("NVIDIA ")) for model, count in line.gpus.items())
        by_column = {
            "GPUs": ", ".join(f"{count} {model}" for count, model in gpus),
            "Held": self.held,
            "Busy": self._busy,
            "Lost": self._time(sum(self._lost)),
            "Idle": self._idle,
            "Unknown": self._unknown,
            "Cost": money(line.money, self._answer),
            "Saved if fixed": money(line.money_lost, self._answer),
        }
        return [terminal.clean(line.name), *(by_column[name] for name in _columns(self._answer))]

    def terms(self) -> list[str]:
        lost = zip(self._line.lost, self._lost, strict=True)
        return [
            f"Held {self.held}",
            f"= busy {self._busy}",
            *(f"+ {each.kind} {self._time(steps)}" for each, steps in lost),
            f"+ idle without a finding {self._idle}",
            *([f"+ unknown {self._unknown}"] if self._line.unknown_ns else []),
        ]

    def lost(self) -> list[str]:
        from ingero.serve import terminal

        return [
            f"{terminal.clean(self._line.name)} lost {self._time(steps)} to {each.kind}"
            f"{self.spoken(each.money)}"
            for each, steps in zip(self._line.lost, self._lost, strict=True)
        ]

    def spoken(self, amount: float | None) -> str:
        return f", {money(amount, self._answer)}" if amount is not None else ""


class Sum:
    """A sum, in lines that end before a term: a number stays with its unit."""

    def __init__(self, terms: list[str]) -> None:
        self._terms = terms

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        line = ""
        for term in self._terms:
            if line and len(line) + 1 + len(term) > options.max_width:
                yield Text(line)
                line = " "
            line = f"{line} {term}" if line else term
        yield Text(line)


def rounded(parts_ns: list[int], step_ns: int) -> list[int]:
    """In whole steps that sum to their rounded sum: where most is left over, it is rounded up."""
    found = [ns // step_ns for ns in parts_ns]
    missing = (sum(parts_ns) + step_ns // 2) // step_ns - sum(found)
    for at in sorted(range(len(found)), key=lambda at: -(parts_ns[at] % step_ns))[:missing]:
        found[at] += 1
    return found


def money(amount: float | None, answer: CostAnswer) -> str:
    """All amounts of an answer have as many digits."""
    if amount is None:
        return "-"
    from ingero.serve import terminal

    digits = 2 if max(line.money or 0.0 for line in answer.lines) >= 1 else 4
    return f"{terminal.clean(answer.prices.currency)}{amount:,.{digits}f}"


def _paragraph(lines: list[str]) -> list[Any]:
    from rich.text import Text

    return [*map(Text, lines), Text()] if lines else []


def _efficiency(line: CostLine) -> str:
    from ingero.serve import terminal
    from ingero.units import format_share

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
    return f"{terminal.clean(line.name)}: {', '.join(told)}" if told else ""
