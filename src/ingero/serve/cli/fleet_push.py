"""`ingero fleet push`: what a recording says of its node, told to a collector while it grows."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import configured, database

if TYPE_CHECKING:
    from ingero.config import Config

EPILOG = """\b
Examples:
  ingero fleet push --fleet https://collector:8443
  ingero fleet push -d node.db --fleet https://collector:8443 --once
"""


@click.command("push", epilog=EPILOG)
@click.option("--fleet", "where", metavar="URL", help="The collector.  [collector.address]")
@click.option("--once", is_flag=True, help="Report the last ten seconds of the recording, then exit.")
@database
@configured
def fleet_push(where: str | None, once: bool, db: Path | None, config: Config) -> int:
    """Report the health of a recording's node to a collector.

    Reports every ten seconds while the recording grows. `ingero trace --fleet` does this without
    a second command. What the collector does not accept is kept on disk and sent later.
    """
    from ingero.serve.cli.fleet_options import sender

    where = where or config.collector.address
    if not where:
        raise UsageError("which collector?", hint="Name it: --fleet https://collector:8443")
    made = sender(where, "--fleet", config)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    from ingero.serve.metrics.fleet_recorded import Recorded

    recorded = Recorded(made, db)
    recorded.run(stop, once)
    box = made.outbox
    click.echo(f"sent {box.sent} batches, {box.waiting} wait, {box.dropped} dropped", err=True)
    return 0 if not box.waiting and not box.dropped else 1
