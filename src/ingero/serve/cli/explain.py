"""`ingero explain`: the diagnosis of a recording, as text, JSON, Markdown or HTML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from ingero.errors import IngeroError, UsageError
from ingero.serve.cli.asking import exit_code, fleet_of, of_nodes, say_state
from ingero.serve.cli.next_steps import hint
from ingero.serve.cli.options import as_json, configured, database, labelled, one_node, whose, wide
from ingero.serve.cli.paging import paged

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.model.live import LiveView
    from ingero.model.report import Report
    from ingero.serve.answers.asked_nodes import Fleet
    from ingero.serve.cli.document import Document

FINDINGS = 3  # exit code
EPILOG = """\b
Examples:
  ingero explain                              the whole last recording
  ingero explain --since 5m --per-process
  ingero explain --from 2026-03-01T02:10 -v
  ingero explain --namespace team-a           one tenant's jobs
  ingero explain --label step=100..200
  ingero explain --by step                    the job's slowest steps
  ingero explain --format html -o report.html
  ingero explain --compare before.db after.db
  ingero explain --json --exit-code | jq .findings
  ingero explain --nodes gpu-node-01:8080,gpu-node-02:8080 --since 5m
"""
NOT_OF_NODES = {
    "labels": "--label",
    **{name: f"--{name}" for name in ("by", "node", "container", "pod", "namespace", "job", "user")},
}
ONE_DATABASE = (
    "start",
    "end",
    "pid",
    "node",
    "container",
    "pod",
    "namespace",
    "job",
    "user",
    "labels",
    "by",
    "per_process",
    "db",
    "nodes",
)


@click.command(epilog=EPILOG)
@click.option("--since", "--last", metavar="D", help="Only the last D, e.g. 90s, 5m, 1h.")
@click.option("--from", "start", metavar="T", help="Only from this time on, e.g. 2026-03-01T02:15.")
@click.option("--to", "end", metavar="T", help="Only up to this time.")
@click.option("--pid", type=click.IntRange(1), metavar="PID", help="Only this process.")
@one_node
@whose
@labelled
@click.option("--per-process", is_flag=True, help="Every process and thread: calls, waits, switches.")
@click.option(
    "--compare",
    nargs=2,
    type=click.Path(path_type=Path, readable=False),
    metavar="BEFORE AFTER",
    help="Two recordings side by side: what improved, against the predicted gain.",
)
@as_json
@wide
@click.option(
    "--format", "form", type=click.Choice(["text", "md", "html", "json"]), help="How to print.  [text]"
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Write to this file.")
@click.option("-v", "--verbose", is_flag=True, help="Show everything known about each finding.")
@click.option("--show-sql", is_flag=True, help="Show the SQL behind each number.")
@click.option("--exit-code", is_flag=True, help="Exit with 3 when there is a finding of MEDIUM or above.")
@of_nodes
@database
@paged
@configured
def explain(config: Config, as_json: bool, form: str | None, **flags: Any) -> int:
    """Say why a recorded job was slow, and what fixes it.

    Reads the recording; needs no privileges. By default it covers the whole last recording.
    --since counts back from now while a trace runs, otherwise from the last record. In a merged
    database, or with --nodes, each node is diagnosed by itself first, then all of them together.
    """
    if as_json and form not in (None, "json"):
        raise UsageError(f"--json and --format {form} exclude each other", hint="Give one of them.")
    form = "json" if as_json else form or "text"
    if flags["compare"]:
        return _compare(form, flags)
    fleet = fleet_of(config, flags, local=flags["db"] is not None)
    if fleet is not None:
        return _explain_nodes(fleet, form, flags)
    from ingero.serve.answers.explain import get_report, has_counted_findings
    from ingero.serve.answers.labels import parse_labels
    from ingero.serve.answers.query import Range
    from ingero.serve.answers.whose import WORDS, Whose

    wanted = Range(flags["since"], flags["start"], flags["end"])
    labels = parse_labels(flags["labels"], flags["by"])
    tenant = Whose(*(flags[name] for name in WORDS))
    report = get_report(flags["db"], wanted, flags["pid"], node=flags["node"], labels=labels, whose=tenant)
    if form == "html" and not flags["per_process"] and report.by is None and tenant == Whose():
        _write(_page(report, flags), flags["output"])
    else:
        _deliver(report, lambda: _document(report, flags), form, flags["output"])
        if form == "text" and flags["output"] is None:
            hint(flags["db"])
    return FINDINGS if flags["exit_code"] and has_counted_findings(report) else 0


def _page(report: Report, flags: dict[str, Any]) -> str:
    """The one file to send on."""
    from ingero.serve.cli.as_html import as_page

    return as_page(_document(report, flags), report, flags["db"], flags["node"])


def _explain_nodes(fleet: Fleet, form: str, flags: dict[str, Any]) -> int:
    from ingero.serve.answers.explain import has_counted_findings
    from ingero.serve.answers.nodes_report import ask_fleet_report
    from ingero.serve.answers.query import Range

    chosen = next((flag for name, flag in NOT_OF_NODES.items() if flags[name]), None)
    if chosen is not None:
        raise UsageError(
            f"{chosen} and --nodes exclude each other",
            hint="Merge the nodes first: ingero merge --nodes ... -o cluster.db",
        )
    report = ask_fleet_report(fleet, Range(flags["since"], flags["start"], flags["end"]), flags["pid"])
    _deliver(report, lambda: _document(report, flags), form, flags["output"])
    if form != "json":
        say_state(report.fleet)
    found = FINDINGS if flags["exit_code"] and has_counted_findings(report) else 0
    return exit_code(report.fleet, flags["strict"], found)


def _document(report: Any, flags: dict[str, Any]) -> Document:
    from ingero.serve.cli.diagnosis import Verbosity, diagnosis
    from ingero.serve.cli.per_process import breakdown

    detail = Verbosity(flags["verbose"], flags["show_sql"])
    return breakdown(report, detail) if flags["per_process"] else diagnosis(report, detail)


def _compare(form: str, flags: dict[str, Any]) -> int:
    chosen = next((name for name in ONE_DATABASE if flags[name]), None)
    if chosen is not None:
        flag = {"start": "from", "end": "to", "labels": "label"}.get(chosen, chosen).replace("_", "-")
        raise UsageError(f"--compare and --{flag} exclude each other", hint="Give one of them.")
    from ingero.serve.answers.compare import get_comparison
    from ingero.serve.cli.comparison import comparison

    before, after = flags["compare"]
    answer = get_comparison(before, after, flags["since"])
    _deliver(answer, lambda: comparison(answer), form, flags["output"])
    return FINDINGS if flags["exit_code"] and answer.after.counted else 0


def _deliver(answer: Any, make: Any, form: str, output: Path | None) -> None:
    """To the file, or to standard output."""
    from ingero.serve.cli import output as writing

    if form == "text" and output is None:
        _print(make(), sys.stdout)
        return
    _write(writing.to_json(answer) + "\n" if form == "json" else _written(make(), form), output)


def _write(text: str, output: Path | None) -> None:
    from ingero.serve.cli import output as writing

    if output is None:
        click.echo(text, nl=False)
        return
    writing.write_file(output, text)
    page = " Open it in a browser; it needs no network." if output.suffix == ".html" else ""
    click.echo(f"Wrote {output}.{page}", err=True)


def _written(document: Document, form: str) -> str:
    if form == "md":
        from ingero.serve.cli.as_markdown import as_markdown

        return as_markdown(document)
    if form == "html":
        from ingero.serve.cli.as_html import as_html

        return as_html(document)
    import io

    out = io.StringIO()
    _print(document, out)
    return out.getvalue()


def _print(document: Document, out: TextIO) -> None:
    from ingero.serve.cli import tables
    from ingero.serve.cli.as_text import write_text

    write_text(document, tables.console(out))


def print_diagnosis(
    db: Path | None, out: TextIO, view: LiveView | None = None, page: Path | None = None
) -> bool:
    """The text diagnosis of the last recording; what stands in its way is one line, not a failure.

    `view`: how the trace ended, which may know more than it could store. `page`: a report is written there.
    Whether there was anything to diagnose.
    """
    from ingero import units
    from ingero.serve.answers.explain import get_report
    from ingero.serve.answers.query import Range
    from ingero.serve.cli.closing import with_memory
    from ingero.serve.cli.diagnosis import Verbosity, diagnosis

    try:
        report = with_memory(get_report(db, Range()), view)
        document = diagnosis(report, Verbosity())
    except IngeroError as error:
        click.echo(f"No diagnosis: {units.clean(error.message, 500)}", file=out)
        return False
    click.echo(file=out)
    _print(document, out)
    if page is not None:
        _write_page(document, report, db, page, out)
    return True


def _write_page(document: Document, report: Report, db: Path | None, page: Path, out: TextIO) -> None:
    """The report to send on; where it cannot be written the diagnosis stands all the same."""
    from ingero import rights, units
    from ingero.serve.cli import output as writing
    from ingero.serve.cli.as_html import as_page
    from ingero.serve.cli.harmless import shown

    try:
        text = as_page(document, report, db)
        with rights.acting_as(rights.whose(page.parent)):
            writing.write_file(page, text)
    except IngeroError as error:
        click.echo(f"\nNo report: {units.clean(error.message, 500)}", file=out)
        return
    click.echo(f"\nReport to open or send on: {shown(str(page))}", file=out)
