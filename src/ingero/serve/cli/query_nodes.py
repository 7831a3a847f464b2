"""`ingero query --nodes`: the same question to many nodes, printed as one answer."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli import asking
from ingero.serve.cli.options import given

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.serve.answers.asked_nodes import Fleet
    from ingero.serve.answers.nodes_rows import FleetRows

# What each node's API does not offer.
NOT_OF_NODES = {"kernels": "--kernels", "labels": "--label", "by": "--by", "node": "--node"}


def query_nodes(fleet: Fleet, sql: str | None, form: str, config: Config, flags: dict[str, Any]) -> int:
    chosen = next((flag for name, flag in NOT_OF_NODES.items() if flags[name]), None)
    if chosen is not None:
        raise UsageError(
            f"{chosen} and --nodes exclude each other",
            hint="Merge the nodes first: ingero merge --nodes ... -o cluster.db",
        )
    if sql is None and flags["reduce"]:
        raise UsageError("--reduce is for SQL", hint="Leave it out, or write a SELECT.")
    if sql is None:
        return _statistics(fleet, form, config, flags)
    return _sql(fleet, sql, form, config, flags)


def _statistics(fleet: Fleet, form: str, config: Config, flags: dict[str, Any]) -> int:
    from ingero.serve.answers.nodes_rows import ask_fleet_statistics
    from ingero.serve.answers.operations import Filters
    from ingero.serve.answers.query import Range
    from ingero.serve.cli import output, statistics, tables
    from ingero.serve.cli.query import print_operations

    filters = Filters(**{each.name: flags[each.name] for each in fields(Filters)})
    wanted = Range(flags["since"], flags["start"], flags["end"])
    answer = ask_fleet_statistics(fleet, wanted, filters, given(flags["limit"], config.query.limit))
    if form == "json":
        click.echo(output.to_json(answer))
    elif form == "table":
        console = tables.console(sys.stdout)
        for part in statistics.parts(answer):
            console.print(part)
        asking.say_state(answer.fleet)
    else:
        print_operations(answer.operations, form)
        asking.say_state(answer.fleet)
    return asking.exit_code(answer.fleet, flags["strict"])


def _sql(fleet: Fleet, sql: str, form: str, config: Config, flags: dict[str, Any]) -> int:
    from ingero.serve.cli import output
    from ingero.serve.cli.query import print_table

    answer = (_reduced if flags["reduce"] else _side_by_side)(fleet, sql, config, flags)
    if form == "json":
        click.echo(output.to_json(answer))
        return asking.exit_code(answer.fleet, flags["strict"])
    print_table(answer, form)
    if form == "table":
        rows = f"{len(answer.rows):,} row{'' if len(answer.rows) == 1 else 's'}"
        click.echo(f"\n  {rows} {asking.nodes_word(answer.fleet)}")
    asking.say_state(answer.fleet)
    return asking.exit_code(answer.fleet, flags["strict"])


def _side_by_side(fleet: Fleet, sql: str, config: Config, flags: dict[str, Any]) -> FleetRows:
    from ingero.serve.answers.nodes_rows import ask_fleet_sql
    from ingero.serve.cli.query import refuse_filters

    refuse_filters(flags)
    return ask_fleet_sql(fleet, sql, given(flags["limit"], config.query.limit))


def _reduced(fleet: Fleet, sql: str, config: Config, flags: dict[str, Any]) -> FleetRows:
    from ingero.serve.answers.nodes_recordings import ask_reduced_sql
    from ingero.serve.answers.query import Range
    from ingero.serve.cli.query import refuse_filters, sql_limits

    refuse_filters(flags, allowed=("since", "start", "end"))
    wanted = Range(flags["since"], flags["start"], flags["end"])
    return ask_reduced_sql(fleet, sql, wanted, sql_limits(config, flags))
