"""`ingero export`: a recording for other programs.

A format is a function that takes an Export and writes it; it is imported when it is
asked for. Another format is one more line in FORMATS; an option that only some
formats know is in ONLY, and refused by the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ingero.errors import UsageError
from ingero.serve.cli.asking import exit_code, fleet_of, of_nodes, say_state
from ingero.serve.cli.options import configured, database, one_node, whose

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.config_tenants import Cost
    from ingero.serve.answers.asked_nodes import Fleet
    from ingero.serve.answers.query import Range
    from ingero.serve.answers.whose import Whose

# Name, and what writes it: module and function.
FORMATS = {
    "perfetto": "ingero.serve.cli.export_perfetto:export_perfetto",
    "csv": "ingero.serve.cli.export_tables:export_csv",
    "parquet": "ingero.serve.cli.export_tables:export_parquet",
    "otlp": "ingero.serve.cli.export_otlp:export_otlp",
    "folded": "ingero.serve.cli.export_folded:export_folded",
}
WHOLE = ("csv", "parquet")  # without a range everything that was recorded, not only the last time
ONLY: dict[str, tuple[str, ...]] = dict.fromkeys(("container", "pod", "namespace", "job", "user"), WHOLE)
ONLY |= {"table": WHOLE, "op": ("folded",), "what": ("folded",)}

EPILOG = """\b
Examples:
  ingero export --format perfetto -o trace.pftrace      for ui.perfetto.dev
  ingero export --format perfetto -o trace.json --since 30s
  ingero export --format csv --table operations > operations.csv
  ingero export --format csv --table operations --namespace team-a
  ingero export --format parquet -o archive/            every table
  ingero export --format otlp -o recording.jsonl        for a collector's otlpjsonfile receiver
  ingero export --format folded -o calls.folded         for flamegraph.pl, speedscope
  ingero export --format perfetto -o cluster.pftrace --nodes @nodes.txt --since 30s
  ingero export --format folded --what samples --since 5m
  ingero export --format folded --what waits --op disk_wait -o disk.folded
"""


@dataclass(frozen=True)
class Export:
    """What is asked for."""

    db: Path | None
    when: Range
    pid: int | None
    node: str | None
    output: Path | None  # None: standard output
    into_folder: bool  # the output was written with a slash at its end, or is a folder
    table: str | None = None
    op: str | None = None
    what: str | None = None
    whose: Whose | None = None
    cost: Cost | None = None


@click.command(epilog=EPILOG)
@click.option("--format", "form", required=True, type=click.Choice(list(FORMATS)), help="What to write.")
@click.option(
    "-o", "--output", metavar="PATH",
    help="File to write, or folder/ for every table. Standard output if not given.",
)  # fmt: skip
@click.option("--since", metavar="D", help="Only the last D, e.g. 90s, 5m, 1h.")
@click.option("--from", "start", metavar="T", help="Only from this time on, e.g. 2026-03-01T02:15.")
@click.option("--to", "end", metavar="T", help="Only up to this time.")
@click.option("--pid", type=click.IntRange(1), metavar="PID", help="Only this process.")
@one_node
@whose
@click.option("--table", metavar="NAME", help="For csv and parquet: see ingero query --schema.  [events]")
@click.option("--op", metavar="NAME", help="For folded: only this operation; for waits, only this bucket.")
@click.option(
    "--what", type=click.Choice(["calls", "samples", "waits", "bytes"]),
    help="For folded: what the width of a stack shows.  [calls]",
)  # fmt: skip
@of_nodes
@database
@configured
def export(config: Config, form: str, output: str | None, **flags: Any) -> int:
    """Write a recording as a timeline, tables or stacks.

    perfetto: a timeline; as JSON if the file's name ends with .json. Covers the whole last recording
    unless you give a range. csv and parquet: tables; everything unless you give a range.
    otlp: metrics, and findings as spans and log records, in JSON lines that an OpenTelemetry collector reads.
    folded: stacks for flame graphs; the width of one is calls, samples on a core, nanoseconds waited, or
    bytes copied and allocated. With --nodes it exports the recordings of all nodes, on one clock.
    """
    from ingero.serve.answers.query import Range
    from ingero.serve.answers.whose import WORDS, Whose

    for name, formats in ONLY.items():
        if flags[name] is not None and form not in formats:
            raise UsageError(f"--{name} is for {' and '.join(formats)}", hint="Leave it out.")
    module, _, function = FORMATS[form].partition(":")
    path = Path(output) if output not in (None, "-") else None
    request = Export(
        db=flags["db"],
        when=Range(flags["since"], flags["start"], flags["end"]),
        pid=flags["pid"],
        node=flags["node"],
        output=path,
        into_folder=path is not None and (str(output).endswith("/") or path.is_dir()),
        table=flags["table"],
        op=flags["op"],
        what=flags["what"],
        whose=Whose(*(flags[name] for name in WORDS)),
        cost=config.cost,
    )
    write = getattr(importlib.import_module(module), function)
    fleet = fleet_of(config, flags, local=flags["db"] is not None)
    if fleet is not None:
        return _export_nodes(fleet, request, write, last=form not in WHOLE, strict=flags["strict"])
    write(request)
    return 0


def _export_nodes(
    fleet: Fleet, request: Export, write: Callable[[Export], None], last: bool, strict: bool
) -> int:
    """What is fetched is of the range already; of the rest each format takes what it would here."""
    from ingero.serve.answers.nodes_recordings import gathered
    from ingero.serve.answers.query import Range

    with gathered(fleet, request.when, last=last) as found:
        write(replace(request, db=found.path, when=Range()))
    say_state(found.state)
    return exit_code(found.state, strict)
