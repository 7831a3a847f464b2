"""`ingero demo`: problems shown on purpose, made up or real, each ending with its diagnosis."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ingero.errors import IngeroError, PrivilegeError, UsageError
from ingero.serve.cli.exporters import exported, exporting
from ingero.serve.cli.options import as_json, configured

if TYPE_CHECKING:
    from ingero.config import Config
    from ingero.model.live import LiveView, Surface
    from ingero.scenarios.scenario import Scenario

SCENARIOS = ("incident", "cold-start", "memcpy-bottleneck", "periodic-spike", "cpu-contention", "gpu-steal")
MADE_UP, LIVE, GPU = "no-gpu", "live", "gpu"
HOW = {
    MADE_UP: "The job is made up, and so are its events; everything else is what a real trace does.",
    LIVE: "A real job on a stub CUDA library, traced by the real probes.",
    GPU: "A real job on this machine's GPU, traced by the real probes.",
}
EPILOG = """\b
Scenarios:
  incident           a program takes the job's cores for a while
  cold-start         start-up: contexts and code are loaded, once
  memcpy-bottleneck  copies from pageable memory
  periodic-spike     the job stops at regular intervals
  cpu-contention     a program takes the job's core and stays
  gpu-steal          a second process on the same GPU
  all                one after the other
\b
Examples:
  ingero demo --no-gpu                    made up; no root, no GPU
  sudo ingero demo --live gpu-steal       real processes and probes, no GPU
  ingero demo --no-gpu --no-tui all
  ingero demo --no-gpu --json | head
"""


@click.command(epilog=EPILOG)
@click.argument("scenario", type=click.Choice((*SCENARIOS, "all")), default="incident", metavar="[SCENARIO]")
@click.option("--no-gpu", "mode", flag_value=MADE_UP, help="Made-up events; no root, no GPU.")
@click.option("--live", "mode", flag_value=LIVE, help="A real job on a stub CUDA library; needs root.")
@click.option("--gpu", "mode", flag_value=GPU, help="The same job on a real GPU; needs root.")
@click.option(
    "--seed", type=int, metavar="N", default=7, show_default=True, help="Random seed of the made-up events."
)
@click.option(
    "--speed",
    type=float,
    metavar="X",
    default=5.0,
    show_default=True,
    help="Playback speed of the made-up events.",
)
@click.option(
    "-d",
    "--db",
    type=click.Path(path_type=Path, readable=False),
    help="Record here; replaces an older demo.  [INGERO_DB if no real job is in it, else demo.db beside it]",
)
@click.option("--no-tui", is_flag=True, help="Lines instead of the live view.")
@exporting
@as_json
@configured
def demo(
    scenario: str,
    mode: str | None,
    seed: int,
    speed: float,
    db: Path | None,
    no_tui: bool,
    as_json: bool,
    prometheus: str | None,
    otlp: str | None,
    fleet: str | None,
    config: Config,
) -> int:
    """Show a GPU job in trouble, and the diagnosis.

    Without a mode it does the best this machine allows: --gpu with a GPU and root, --live as root,
    else --no-gpu. Afterwards you can query the recording like any other.
    """
    if not 0.1 <= speed <= 10_000:
        raise UsageError(f"--speed: {speed} is not between 0.1 and 10000", hint="Leave it out to use 5.")
    from ingero.scenarios import demo as made_up
    from ingero.scenarios.catalogue import ALL, BY_NAME

    chosen = list(ALL) if scenario == "all" else [BY_NAME[scenario]]
    mode = _allowed(mode) if mode else _best()
    path = db or made_up.default_path()
    if db is None:
        made_up.remove(path)
    show = _Show(mode, path, abs(seed), speed, as_json=as_json, no_tui=no_tui)
    show.exported = lambda surface: exported(surface, config, prometheus, otlp, fleet)
    return show.all(chosen)


def _best() -> str:
    from ingero.scenarios.live import has_card

    try:
        _require_privileges()
    except IngeroError:
        return MADE_UP
    return GPU if has_card() else LIVE


def _allowed(mode: str) -> str:
    """The mode, or why it cannot be."""
    from ingero.scenarios.live import require_card

    if mode != MADE_UP:
        _require_privileges()
    if mode == GPU:
        require_card()
    return mode


def _require_privileges() -> None:
    from ingero.agent.starting import require_privileges

    try:
        require_privileges()
    except PrivilegeError as error:
        raise PrivilegeError(
            error.message,
            hint="Run `sudo ingero demo --live`, or use --no-gpu, which needs no privileges.",
        ) from error


class _Show:
    """Plays scenarios in one mode, each followed by its diagnosis."""

    def __init__(
        self, mode: str, path: Path, seed: int, speed: float, *, as_json: bool, no_tui: bool
    ) -> None:
        self._mode, self._path, self._seed, self._speed = mode, path, seed, speed
        self._as_json, self._no_tui = as_json, no_tui
        self._stopped = False
        self._last: LiveView | None = None
        self.exported: Callable[[Surface], Surface] = lambda surface: surface

    def all(self, scenarios: list[Scenario]) -> int:
        code = 0
        for number, each in enumerate(scenarios):
            if not self._as_json:
                click.echo(f"\ningero demo {each.name}: {each.summary}.\n{HOW[self._mode]}\n")
                sys.stdout.flush()
            code = self._play(each, scenarios[number + 1 :]) or code
            if not self._as_json:
                self._conclude(each, alone=len(scenarios) == 1)
            if self._stopped:
                break
        return code

    def _play(self, scenario: Scenario, later: list[Scenario]) -> int:
        from ingero.serve.cli.closing import Remembered
        from ingero.serve.cli.trace import run_on

        surface = Remembered(self.exported(self._surface()))

        def work() -> int:
            code = (
                self._made_up(scenario, later, surface)
                if self._mode == MADE_UP
                else self._live(scenario, surface)
            )
            self._stopped = surface.stop_requested.is_set()
            return code

        code = run_on(surface, work)
        self._last = surface.last
        if self._last and self._last.database.problem:
            click.echo(f"Some of it was not recorded: {self._last.database.problem}.", err=True)
        return code

    def _surface(self) -> Surface:
        from ingero.serve.cli.narration import Narration
        from ingero.serve.cli.trace import choose_surface

        return choose_surface(
            as_json=self._as_json, no_tui=self._no_tui, command=False, lines=Narration(sys.stdout)
        )

    def _made_up(self, scenario: Scenario, later: list[Scenario], surface: Surface) -> int:
        from ingero.agent.diagnosis import LiveDiagnosis
        from ingero.scenarios import demo as made_up

        # Those that follow end later: two recordings of one database never overlap.
        ago_ns = sum(map(made_up.length_ns, later))
        played = made_up.Played(scenario, self._path, self._seed, self._speed, ago_ns)
        return made_up.run(played, surface, LiveDiagnosis)

    def _live(self, scenario: Scenario, surface: Surface) -> int:
        surface.starting("starting the job")
        from ingero import agent
        from ingero.model.options import TraceOptions
        from ingero.scenarios.live import Stage
        from ingero.serve.cli.narration import Announced

        with Stage(scenario.live, gpu=self._mode == GPU) as stage:
            options = TraceOptions(
                pids=stage.pids, duration_ns=scenario.live.seconds * 1_000_000_000, db=self._path
            )
            code = agent.run(options, Announced(surface, stage.begin, stage.says))
            stage.require_success()
            return code

    def _conclude(self, scenario: Scenario, alone: bool) -> None:
        from ingero.serve.called import how_we_are_called
        from ingero.serve.cli.explain import print_diagnosis
        from ingero.serve.cli.next_steps import show, steps

        made_up = self._mode == MADE_UP
        told = print_diagnosis(self._path, sys.stdout, self._last)
        root = how_we_are_called(as_root=True)
        if not told:
            again = how_we_are_called() if made_up else root
            click.echo(f"\nSee it to its end:\n  {again} demo --{self._mode} {scenario.name}")
        elif alone:
            click.echo("\nAsk the recording yourself:")
            real = f"{root} demo --live", "the same with real processes and probes"
            yours = f"{root} trace", "watch the jobs of this machine"
            show([*steps(self._path), real if made_up else yours])
        sys.stdout.flush()
