"""Plays one run of a case: the job, its fault or none, watched by a trace or not."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import jobs
from benchmarks.truth import leftovers
from benchmarks.truth.drawn import Case, Draw
from benchmarks.truth.props import happened
from benchmarks.truth.stage import Stage, descendants

SHARED_MEMORY = Path("/dev/shm")
SETTLE_S = 0.7  # from the first steps until the job is watched
BEFORE_S = 3.0  # healthy time watched before a fault that comes amid
FAULTY_S = 5.5
TWIN_S = 5.0


@dataclass
class Played:
    """What one run did, by its own clock."""

    step_ms: float | None = None  # mean over the time judged
    steps: int = 0
    pids: list[int] = field(default_factory=list)  # the job's processes
    culprits: list[tuple[int, str]] = field(default_factory=list)
    happened: str = ""
    db: Path | None = None


def mean_step_ms(ends_ns: list[int], from_ns: int, to_ns: int) -> float | None:
    """Over steps that lie within; a time with no end of a step in it has none."""
    within = [end for end in ends_ns if from_ns <= end <= to_ns]
    if len(within) < 2:
        return None
    return (within[-1] - within[0]) / (len(within) - 1) / 1e6


@contextmanager
def staged(db_folder: Path) -> Iterator[Stage]:
    folder = SHARED_MEMORY / f"job-{secrets.token_hex(6)}"
    leftovers.note("folder", str(folder))
    folder.mkdir(mode=0o700)
    stage = Stage(folder, db_folder)
    try:
        yield stage
    finally:
        stage.close()
        shutil.rmtree(folder, ignore_errors=True)


def start(draw: Draw, stage: Stage, faulty: bool = False) -> None:
    stage.environment |= draw.stub | (draw.faulty_stub if faulty else {})
    for prop in draw.props:
        prop.set_up(stage)
    stage.start_job(draw.script, draw.usual, draw.later)
    for prop in draw.props:
        prop.job_started(stage)


def bite(draw: Draw, stage: Stage) -> int:
    """The fault begins; when."""
    for prop in draw.props:
        prop.bite(stage)
    stage.book.phase = 1
    return time.monotonic_ns()


def play(case: Case, draw: Draw, db_folder: Path, *, faulty: bool, traced: bool, seconds: float) -> Played:
    """`seconds`: how long the time that is judged lasts."""
    db_folder.mkdir(parents=True, exist_ok=True)
    with staged(db_folder) as stage:
        start(draw, stage, faulty)
        if not draw.attach_first:
            stage.go()
            stage.until(lambda: stage.book.steps > 2, f"first steps of {case.name}")
            time.sleep(SETTLE_S)
        from_ns = time.monotonic_ns()
        if faulty and not draw.amid:
            from_ns = bite(draw, stage)
            time.sleep(SETTLE_S)
        with watched(draw, stage, db_folder, traced) as db:
            if draw.attach_first:
                stage.go()
            if faulty and draw.amid:
                time.sleep(BEFORE_S if traced else 0.5)
                from_ns = bite(draw, stage)
            time.sleep(seconds)
            to_ns = time.monotonic_ns()
        return told(draw, stage, from_ns, to_ns, db)


@contextmanager
def watched(draw: Draw, stage: Stage, folder: Path, traced: bool) -> Iterator[Path | None]:
    """As users attach: to a job that runs, by its process id, or to all there are."""
    if not traced:
        yield None
        return
    chosen = () if draw.watch_all else ("--pid", str(stage.pid))
    with jobs.tracing(folder, *chosen) as trace:
        yield trace.db
        trace.stop()


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def told(draw: Draw, stage: Stage, from_ns: int, to_ns: int, db: Path | None) -> Played:
    ends_ns, counted = stage.book.ends_ns(), happened(draw.props, stage)
    return Played(
        None if draw.steps_end else mean_step_ms(ends_ns, from_ns, to_ns),
        sum(from_ns <= end <= to_ns for end in ends_ns),
        [stage.pid, *descendants(stage.pid), *stage.book.hired],
        [(pid, command_of(pid)) for pid in stage.culprits],
        counted,
        db,
    )
