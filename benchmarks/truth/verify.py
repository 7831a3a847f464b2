"""Whether each fault really bites: steps with and without it, by the job's own clock, untraced."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.truth.cases import drawn
from benchmarks.truth.drawn import Case
from benchmarks.truth.play import Played, play

SECONDS = 2.5
LOST = (0.15, 0.75)  # share of the faulty wall time that the fault may take
HARMLESS = 0.08  # what is only odd may take less than this


def lost_share(healthy: Played, faulty: Played) -> float | None:
    if not healthy.step_ms or not faulty.step_ms:
        return None
    return 1 - healthy.step_ms / faulty.step_ms


def verdict(case: Case, share: float | None) -> str:
    if not case.timed or (case.healthy and share is None):
        return ""
    if share is None:
        return "NO STEPS"
    if case.healthy:
        return "" if share < HARMLESS else "OUT OF RANGE"
    return "" if LOST[0] <= share <= LOST[1] else "OUT OF RANGE"


def verify(cases: Sequence[Case], seeds: Sequence[int]) -> Iterator[str]:
    """Lines of a table, as they come."""
    yield "| case | seed | healthy step ms | faulty step ms | ratio | lost | what the machine counted | |"
    yield "|---|---|---|---|---|---|---|---|"
    for case in cases:
        for seed in seeds:
            yield row(case, seed)


def row(case: Case, seed: int) -> str:
    try:
        with tempfile.TemporaryDirectory() as folder:
            draw = drawn(case, seed)
            seconds = SECONDS + 3 * draw.attach_first
            runs = [
                play(case, drawn(case, seed), Path(folder), faulty=faulty, traced=False, seconds=seconds)
                for faulty in (False, True)
            ]
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        return f"| {case.name} | {seed} | | | | | {error} | FAILED |"
    healthy, faulty = runs[0], runs[-1]
    share = lost_share(healthy, faulty)
    ratio = f"{faulty.step_ms / healthy.step_ms:.2f}" if faulty.step_ms and healthy.step_ms else ""
    lost = f"{share:.0%}" if share is not None else ""
    cells = [case.name, str(seed), _ms(healthy), _ms(faulty), ratio, lost, faulty.happened]
    return f"| {' | '.join(cells)} | {verdict(case, share)} |"


def _ms(played: Played) -> str:
    return f"{played.step_ms:.1f}" if played.step_ms else f"({played.steps} steps)"
