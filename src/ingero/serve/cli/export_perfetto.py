"""The timeline as a file for ui.perfetto.dev: packets, or JSON where the name says so."""

from __future__ import annotations

from collections.abc import Iterable

import click

from ingero.errors import UsageError
from ingero.serve.answers.timeline import open_timeline
from ingero.serve.cli.chrome_json import Lines
from ingero.serve.cli.export import Export
from ingero.serve.cli.output import writing
from ingero.serve.cli.perfetto_packets import Packets

CHUNK_BYTES = 1 << 20


def export_perfetto(request: Export) -> None:
    if request.output is None or request.into_folder:
        raise UsageError("a timeline is written to a file", hint="Name it with -o, e.g. -o trace.pftrace.")
    with (
        open_timeline(request.db, request.when, request.pid, request.node) as (when, items),
        writing(request.output) as file,
    ):
        made = Lines().lines if request.output.suffix == ".json" else Packets().packets
        for chunk in _chunks(made(items, when.from_ns)):
            file.write(chunk)
    click.echo(f"Wrote {request.output}; open it at ui.perfetto.dev", err=True)


def _chunks(parts: Iterable[bytes]) -> Iterable[bytes]:
    """Few writes instead of millions."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held.clear()
            size = 0
    yield b"".join(held)
