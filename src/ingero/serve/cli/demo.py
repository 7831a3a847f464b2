"""`ingero demo`: a job in trouble, without a GPU and without privileges."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingero.errors import UsageError
from ingero.serve.cli.options import as_json, configured

if TYPE_CHECKING:
    from ingero.config import Config

EPILOG = """\b
Examples:
  ingero demo
  ingero demo --no-tui --speed 100
  ingero demo --json | head
"""


@click.command(epilog=EPILOG)
@click.option("--seed", type=int, default=7, show_default=True, help="The same seed gives the same numbers.")
@click.option("--speed", type=float, default=10.0, show_default=True, help="Seconds of the job per second.")
@click.option(
    "-d",
    "--db",
    type=click.Path(path_type=Path, readable=False),
    help="Record here.  [~/.ingero/demo.db, begun anew]",
)
@click.option("--no-tui", is_flag=True, help="Plain tables instead of the live view.")
@as_json
@configured
def demo(seed: int, speed: float, db: Path | None, no_tui: bool, as_json: bool, config: Config) -> int:  # noqa: ARG001
    """Show a made-up job in trouble; needs no GPU and no privileges.

    A training job runs well until another program takes its cores. The events are
    made up; counting, recording and showing them is what a trace does. The recording
    can be asked afterwards.
    """
    if not 0.1 <= speed <= 10_000:
        raise UsageError(f"--speed: {speed} is not between 0.1 and 10000", hint="Leave it out for 10.")
    from ingero.scenarios import demo as scenario
    from ingero.serve.cli.trace import choose_surface, run_on

    path = db or scenario.default_path()
    options = scenario.DemoOptions(path, abs(seed), speed, fresh=db is None)
    surface = choose_surface(as_json=as_json, no_tui=no_tui, command=False)
    code = run_on(surface, lambda: scenario.run(options, surface))
    if not as_json:
        _suggest(path)
    return code


def _suggest(path: Path) -> None:
    import shlex

    name = shlex.quote(str(path))
    click.echo("Who took the cores?")
    click.echo(
        f"  ingero query -d {name} 'SELECT comm, pid, sum(ns)/1e9 AS seconds FROM culprits GROUP BY pid'"
    )
    sys.stdout.flush()
