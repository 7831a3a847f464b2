"""`ingero export --format otlp`: a recording for an OpenTelemetry collector to read.

Lines of JSON, as collectors write and read them: metrics, spans and log records of each node.
"""

from __future__ import annotations

import os

import click

from ingero.errors import UsageError
from ingero.model.gpus import UNPRICED
from ingero.serve.answers.cost import prices_of
from ingero.serve.answers.finding_news import News, What
from ingero.serve.answers.recorded_metrics import recorded_metrics
from ingero.serve.cli import output
from ingero.serve.cli.export import Export


def export_otlp(request: Export) -> None:
    try:
        from ingero.serve.metrics.otlp_json import lines
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("ingero"):
            raise
        raise UsageError(
            f"OTLP needs packages that are not installed ({error.name})",
            hint="Install them: pip install 'ingero[otlp]'",
        ) from error
    if request.into_folder:
        raise UsageError("this is written to one file", hint="Name it with -o, e.g. -o recording.jsonl.")
    written: list[str] = []
    findings = 0
    prices = prices_of(request.cost) if request.cost else UNPRICED
    for snapshot in recorded_metrics(request.db, request.when, request.pid, request.node, prices):
        news = [
            News(what, each, each.first_ns) for each in snapshot.findings for what in (What.BEGAN, What.ENDED)
        ]
        written += lines(snapshot, news, os.environ)
        findings += len(snapshot.findings)
    text = "".join(f"{line}\n" for line in written)
    if request.output is None:
        click.echo(text, nl=False)
        return
    output.write_file(request.output, text)
    click.echo(f"Wrote {request.output}: metrics, and {findings} findings as spans and log records", err=True)
