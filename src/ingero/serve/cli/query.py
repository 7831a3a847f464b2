"""`ingero query`: per-operation statistics of a recording, or one SELECT."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.asking import of_nodes
from ingero.serve.cli.next_steps import hint
from ingero.serve.cli.options import (
    as_json,
    configured,
    database,
    given,
    labelled_or_whose,
    one_node,
    whose,
    wide,
)
from ingero.serve.cli.paging import paged

if TYPE_CHECKING:
    from pathlib import Path

    from ingero.config import Config
    from ingero.serve.answers.json_schemas import ViewsAnswer
    from ingero.serve.answers.kernels import KernelsAnswer
    from ingero.serve.answers.labels import Labels
    from ingero.serve.answers.nodes_rows import FleetRows
    from ingero.serve.answers.operations import Filters, OperationStats
    from ingero.serve.answers.query import LabelledAnswer, Limits, Range, SqlAnswer, StatisticsAnswer

EPILOG = """\b
Examples:
  ingero query                                the last recording, by operation
  ingero query --since 5m --pid 4821
  ingero query --kernels                      the same, by CUDA kernel
  ingero query --by step                      by the job's own steps, longest first
  ingero query --by namespace                 what each namespace calls; also pod, job, user, container
  ingero query --label step=100..200
  ingero query "SELECT op, SUM(weight) AS calls FROM cuda_events GROUP BY op"
  ingero query "SELECT op, SUM(count) AS calls, MAX(max_ns) FROM operations GROUP BY op"
  ingero query --format csv "SELECT * FROM culprits" > culprits.csv
  ingero query --schema                       tables and columns

\b
Many nodes:
  ingero query --nodes gpu-node-01:8080,gpu-node-02:8080 \\
      "SELECT node, source, count(*) as cnt, avg(duration)/1000 as avg_us
       FROM events GROUP BY node, source"     each node's own rows, one after the other
  ingero query --nodes @nodes.txt --reduce --since 5m \\
      "SELECT op, avg(duration_ns) FROM calls GROUP BY op ORDER BY 2 DESC LIMIT 5"
                                              over the rows of all nodes together
"""
FILTERS = ("since", "start", "end", "pid", "op", "container", "pod", "namespace", "job", "user")


_COMMENT = re.compile(r"--(?:[ \t\r\n]|[^=\n]*\n)")
_COMMENTS = re.compile(r"\A(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)+", re.DOTALL)


class SqlCommand(click.Command):
    """SQL may begin with a comment: options have no line break, and no blank after the dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [_without_comment(each) for each in args])


def _without_comment(argument: str) -> str:
    return _COMMENTS.sub("", argument) if _COMMENT.match(argument) else argument


@click.command(epilog=EPILOG, cls=SqlCommand)
@click.argument("sql", required=False)
@click.option("--since", metavar="D", help="Only the last D, e.g. 90s, 5m, 1h.")
@click.option("--from", "start", metavar="T", help="Only from this time on, e.g. 2026-03-01T02:15.")
@click.option("--to", "end", metavar="T", help="Only up to this time.")
@click.option("--pid", type=click.IntRange(1), metavar="PID", help="Only this process.")
@one_node
@click.option("--op", metavar="NAME", help="Only this operation.")
@whose
@labelled_or_whose
@click.option("--kernels", is_flag=True, help="Group by CUDA kernel instead of by operation.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of rows.  [10000]")
@click.option(
    "--format", "form", type=click.Choice(["table", "json", "csv", "parquet"]), help="How to print.  [table]"
)
@as_json
@wide
@click.option("--schema", is_flag=True, help="Describe tables and columns.")
@of_nodes
@click.option("--reduce", is_flag=True, help="With --nodes: run the SQL once, over all nodes' rows together.")
@database
@paged
@configured
def query(
    sql: str | None, form: str | None, as_json: bool, schema: bool, config: Config, **flags: Any
) -> int:
    """Ask a recording: statistics, or any SELECT.

    Without SQL it lists the operations of the last recording and what they cost. SQL is a single
    read-only statement. With --nodes every node runs it on its own recording: each row starts with
    its node, and COUNT, AVG or LIMIT apply to each node separately. --reduce fetches the tables it
    needs from all nodes, in the given range, and runs the statement once, here, on all of them.
    """
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} exclude each other", hint="Give one of them.")
    form = "json" if as_json else form or "table"
    if schema:
        _print_schema(form)
        return 0
    from ingero.serve.cli.asking import fleet_of

    fleet = fleet_of(config, flags, local=flags["db"] is not None)
    if fleet is not None:
        from ingero.serve.cli.query_nodes import query_nodes

        return query_nodes(fleet, sql, form, config, flags)
    if flags["reduce"]:
        raise UsageError("--reduce is for --nodes", hint="Name the nodes to ask.")
    if sql is None and flags["by"]:
        _print_by_label(_by_label(config, flags), form)
    elif sql is None and flags["kernels"]:
        _print_kernels(_kernels(config, flags), form)
    elif sql is None:
        _print_statistics(_statistics(config, flags), form)
        if form == "table":
            hint(flags["db"], "explain", "why the job was slow")
    else:
        _print_rows(_rows(sql, config, flags), form)
    return 0


def _statistics(config: Config, flags: dict[str, Any]) -> StatisticsAnswer:
    from ingero.serve.answers.query import ask_statistics

    return ask_statistics(*_asked(config, flags), _labels(flags))


def _by_label(config: Config, flags: dict[str, Any]) -> LabelledAnswer:
    from ingero.serve.answers.query import ask_by_label

    if flags["kernels"]:
        raise UsageError("--kernels and --by exclude each other", hint="Give one of them.")
    return ask_by_label(*_asked(config, flags), _labels(flags))


def _labels(flags: dict[str, Any]) -> Labels:
    from ingero.serve.answers.labels import parse_labels

    return parse_labels(flags["labels"], flags["by"])


def _kernels(config: Config, flags: dict[str, Any]) -> KernelsAnswer:
    from ingero.serve.answers.query import ask_kernels

    if flags["labels"]:
        raise UsageError("--kernels and --label exclude each other", hint="Give one of them.")
    return ask_kernels(*_asked(config, flags))


def _asked(config: Config, flags: dict[str, Any]) -> tuple[Path | None, Range, Filters, int, str | None]:
    from ingero.serve.answers.operations import Filters
    from ingero.serve.answers.query import Range, require_known
    from ingero.serve.answers.whose import WORDS

    filters = Filters(flags["pid"], flags["op"], *(flags[name] for name in WORDS))
    require_known(flags["db"], filters, flags["node"])
    wanted = Range(flags["since"], flags["start"], flags["end"])
    return flags["db"], wanted, filters, given(flags["limit"], config.query.limit), flags["node"]


def refuse_filters(flags: dict[str, Any], allowed: tuple[str, ...] = ()) -> None:
    """SQL has its own way to say them."""
    chosen = next((name for name in FILTERS if flags[name] is not None and name not in allowed), None)
    chosen = chosen or next((name for name in ("kernels", "labels", "by") if flags[name]), None)
    if chosen is not None:
        flag = {"start": "from", "end": "to", "labels": "label"}.get(chosen, chosen)
        raise UsageError(f"--{flag} is for statistics, not for SQL", hint="Write it as WHERE.")


def _rows(sql: str, config: Config, flags: dict[str, Any]) -> SqlAnswer:
    from ingero.serve.answers.query import ask_sql

    refuse_filters(flags)
    return ask_sql(flags["db"], sql, sql_limits(config, flags), flags["node"])


def sql_limits(config: Config, flags: dict[str, Any]) -> Limits:
    from ingero import units
    from ingero.serve.answers.query import Limits

    seconds = units.parse_duration(str(config.query.timeout)) / units.SECOND
    return Limits(rows=given(flags["limit"], config.query.limit), seconds=seconds)


def _print_rows(answer: SqlAnswer, form: str) -> None:
    from ingero.serve.cli import output

    if form == "json":
        click.echo(output.to_json(answer))
        return
    print_table(answer, form)


def print_table(answer: SqlAnswer | FleetRows, form: str) -> None:
    """Rows as a table, CSV or Parquet; what to know about them on standard error."""
    from ingero.serve.cli import output

    if form == "csv":
        output.write_csv(answer.columns, answer.rows, sys.stdout)
    elif form == "parquet":
        output.write_parquet(answer.columns, answer.rows)
    else:
        output.write_columns(answer.columns, answer.rows, sys.stdout)
    if not answer.rows:
        click.echo("No rows.", err=True)
    if answer.truncated:
        click.echo(f"Only the first {len(answer.rows):,} rows; --limit allows more.", err=True)
    for note in answer.notes:
        click.echo(f"Note: {note}.", err=True)


def _print_statistics(answer: StatisticsAnswer, form: str) -> None:
    if form == "table":
        _print_tables(answer)
        return
    from ingero.serve.cli import output

    if form == "json":
        click.echo(output.to_json(answer))
        return
    print_operations(answer.operations, form)


def print_operations(operations: list[OperationStats], form: str) -> None:
    from ingero.serve.cli import output

    rows = _flat(operations)
    if form == "csv":
        output.write_csv(_columns(), rows, sys.stdout)
    else:
        output.write_parquet(_columns(), rows)


def _print_by_label(answer: LabelledAnswer, form: str) -> None:
    from ingero.serve.cli import output

    if form == "json":
        click.echo(output.to_json(answer))
        return
    if form == "table":
        from ingero.serve.cli import statistics, tables

        console = tables.console(sys.stdout)
        for part in statistics.parts_by_label(answer):
            console.print(part)
        return
    rows = [
        {answer.key: each.value, "held_ns": each.held_ns} | row
        for each in answer.values
        for row in _flat(each.operations)
    ]
    columns = [answer.key, "held_ns", *_columns()]
    if form == "csv":
        output.write_csv(columns, rows, sys.stdout)
    else:
        output.write_parquet(columns, rows)


def _flat(operations: list[OperationStats]) -> list[dict[str, Any]]:
    import msgspec

    changed = ({"pids": " ".join(map(str, row.pids)), "exact": int(row.exact)} for row in operations)
    return [msgspec.to_builtins(row) | more for row, more in zip(operations, changed, strict=True)]


def _print_kernels(answer: KernelsAnswer, form: str) -> None:
    from dataclasses import asdict, fields

    from ingero.serve.answers.kernels import KernelStats
    from ingero.serve.cli import output

    columns = [field.name for field in fields(KernelStats)]
    if form == "json":
        click.echo(output.to_json(answer))
    elif form == "csv":
        output.write_csv(columns, map(asdict, answer.kernels), sys.stdout)
    elif form == "parquet":
        output.write_parquet(columns, list(map(asdict, answer.kernels)))
    else:
        from ingero.serve.cli import statistics, tables

        console = tables.console(sys.stdout)
        for part in statistics.kernel_parts(answer):
            console.print(part)


def _columns() -> list[str]:
    from dataclasses import fields

    from ingero.serve.answers.operations import OperationStats

    return [field.name for field in fields(OperationStats)]


def _print_tables(answer: StatisticsAnswer) -> None:
    from ingero.serve.cli import statistics, tables

    console = tables.console(sys.stdout)
    for part in statistics.parts(answer):
        console.print(part)


def _print_schema(form: str) -> None:
    from ingero.serve.answers.json_schemas import get_views
    from ingero.serve.cli import output

    answer = get_views()
    if form == "json":
        click.echo(output.to_json(answer))
        return
    rows = [
        {"view": view.name, "column": column, "meaning": meaning}
        for view in answer.views
        for column, meaning in view.columns.items()
    ]
    if form == "csv":
        output.write_csv(["view", "column", "meaning"], rows, sys.stdout)
    elif form == "parquet":
        output.write_parquet(["view", "column", "meaning"], rows)
    else:
        _print_views(answer)


def _print_views(answer: ViewsAnswer) -> None:
    for view in answer.views:
        click.echo(f"{view.name}: {view.about}")
        for column, meaning in view.columns.items():
            click.echo(f"  {column:16} {meaning}")
        click.echo()
    for note in answer.notes:
        click.echo(note)
