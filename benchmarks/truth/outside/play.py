"""Plays the jobs, each watched by the real agent, and writes down what is true of it.

    python -m benchmarks.truth.outside.play --seed 11 --out DIR [--only NAME,NAME] [--part 1/3]
    python -m benchmarks.truth.outside.play --seed 11 --out DIR --rehearse

Of each job a folder in DIR: `trace.db`, `truth.json`, `pace.json` (when each of its
steps ended). Every job runs some seconds in peace before it is watched, so that its
usual pace is known also where the fault is there from the recording's start.
In pieces: `--fresh` leaves out what DIR has already, `--within` begins no job that would end
later. `--rehearse` watches nothing and is short: it shows that each fault bites.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import jobs
from benchmarks.truth import leftovers
from benchmarks.truth.outside import faulty, healthy
from benchmarks.truth.outside.around import USUAL_SHARES, arena
from benchmarks.truth.outside.job import PROGRAMS, Job
from benchmarks.truth.outside.pace import loss, steps_per_s
from benchmarks.truth.outside.scene import Scene
from benchmarks.truth.stage import until

SHARED_MEMORY = Path("/dev/shm")
SETTLE_S = 1.0  # of the first steps no pace is taken
PEACE_S = 3.0  # before a fault that is there when the recording begins
BITES_S = 0.5  # from the fault until its pace is taken
AMID_S = 8.0  # watched before a fault that comes amid
REHEARSED_S = 3.0
LONGEST_S = 32.0  # that one job takes, with all around it
TABLES = ("processes", "operations", "thread_time", "stacks")


def drawn(seed: int) -> list[tuple[Job, bool]]:
    """All jobs, and whether the fault of each begins amid the recording."""
    made = [draw(Random(f"{seed}:{draw.__name__}")) for draw in (*faulty.ALL, *healthy.ALL)]
    free = sorted(job.name for job in made if job.faulty and job.amid is None)
    Random(f"{seed}:onset").shuffle(free)
    forced = sum(job.amid is True for job in made)
    late = set(free[: max(0, (len(free) + forced) // 2 - forced)])
    Random(f"{seed}:order").shuffle(made)
    return [(job, job.faulty and (job.name in late or job.amid is True)) for job in made]


@contextlib.contextmanager
def staged(job: Job, out: Path) -> Iterator[Scene]:
    folder = SHARED_MEMORY / f"run-{secrets.token_hex(4)}"
    leftovers.note("folder", str(folder))
    folder.mkdir(mode=0o700)
    scene = Scene(folder, out, environment=dict(job.stub))
    try:
        scene.prepare()
        scene.write_settings(job.first, job.then)
        for each in job.around:
            each.set_up(scene)
        scene.write_settings(job.first, job.then)
        yield scene
    finally:
        scene.close()
        shutil.rmtree(folder, ignore_errors=True)


def begin(job: Job, scene: Scene) -> None:
    scene.start_job(job.program)
    for each in job.around:
        each.started(scene)
    steps = 3 if job.measured else 1
    until(lambda: len(scene.ends_ns()) >= steps, f"the first steps of {job.name}")
    time.sleep(SETTLE_S)


def bite(job: Job, scene: Scene) -> int:
    for each in job.around:
        each.bite(scene)
    scene.turn()
    return time.monotonic_ns()


def comm_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def rehearse(job: Job, out: Path, seconds: float) -> dict[str, Any]:
    with staged(job, out) as scene:
        begin(job, scene)
        from_ns = time.monotonic_ns()
        time.sleep(seconds)
        onset_ns = bite(job, scene) if job.faulty else time.monotonic_ns()
        time.sleep(BITES_S + seconds)
        return paces(scene.ends_ns(), from_ns, onset_ns, time.monotonic_ns())


def paces(ends_ns: list[int], from_ns: int, onset_ns: int, to_ns: int) -> dict[str, Any]:
    before = steps_per_s(ends_ns, from_ns, onset_ns)
    after = steps_per_s(ends_ns, onset_ns + int(BITES_S * 1e9), to_ns)
    return {"steps_per_s_before": before, "steps_per_s_after": after, "loss": loss(before, after)}


def watched(job: Job, amid: bool, out: Path) -> dict[str, Any]:
    """Attached to the running job by its process id, as users do."""
    with staged(job, out) as scene:
        begin(job, scene)
        from_ns, onset_ns = time.monotonic_ns(), 0
        if job.faulty and not amid:
            time.sleep(PEACE_S)
            onset_ns = bite(job, scene)
        pids = scene.family()
        with jobs.tracing(out, "--pid", str(scene.pid)) as trace:
            start_ns, clock_ns = time.monotonic_ns(), time.time_ns() - time.monotonic_ns()
            if amid:
                time.sleep(AMID_S)
                from_ns, onset_ns = start_ns, bite(job, scene)
            time.sleep(max(0.0, job.seconds - (time.monotonic_ns() - start_ns) / 1e9))
            to_ns = time.monotonic_ns()
            known = [{"pid": pid, "comm": comm_of(pid)} for pid in scene.culprits]
            pids = sorted({*pids, *scene.family()})
            trace.stop()
        middle_ns = onset_ns or (start_ns + to_ns) // 2
        measured = paces(scene.ends_ns(), from_ns if job.faulty else start_ns, middle_ns, to_ns)
        at = {"recorded_from_ns": start_ns + clock_ns, "recorded_to_ns": to_ns + clock_ns}
        if job.faulty:
            at |= {"onset_ns": onset_ns + clock_ns}
        write_pace(out, scene, clock_ns)
        return measured | at | {"pids": pids, "culprit_pids": known}


def watched_whole(job: Job, out: Path) -> dict[str, Any]:
    """From its first call to its end: `ingero trace -- COMMAND`."""
    with staged(job, out) as scene:
        start_ns, clock_ns = time.monotonic_ns(), time.time_ns() - time.monotonic_ns()
        words = [
            *jobs.INGERO,
            "trace",
            "--no-tui",
            "--db",
            str(out / "trace.db"),
            "--",
            *scene.command(job.program),
        ]
        with (out / "trace.log").open("wb") as log:
            process = scene.start(
                *words, stdout=log, stderr=log, env=scene.job_environment() | jobs.environment(out)
            )
            code = process.wait(timeout=60)
        if code:
            raise RuntimeError(f"the traced command ended with {code}")
        ends_ns = scene.ends_ns()
        write_pace(out, scene, clock_ns)
        measured = paces(ends_ns, ends_ns[0], (ends_ns[0] + ends_ns[-1]) // 2, ends_ns[-1])
        return measured | {"recorded_from_ns": start_ns + clock_ns, "pids": [], "culprit_pids": []}


def write_pace(out: Path, scene: Scene, clock_ns: int) -> None:
    ends_ns = [end + clock_ns for end in scene.ends_ns()]
    (out / "pace.json").write_text(json.dumps({"ends_ns": ends_ns}))


def rows(db: Path) -> dict[str, int]:
    """What was recorded, counted; nothing of it is read."""
    with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}


def recorded_pids(db: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as connection:
        return [pid for (pid,) in connection.execute("SELECT DISTINCT pid FROM processes")]


def truth(job: Job, amid: bool, seed: int, met: dict[str, Any]) -> dict[str, Any]:
    onset: dict[str, Any] = {"onset": None, "onset_s": None}
    if job.faulty:
        into_s = (met["onset_ns"] - met["recorded_from_ns"]) / 1e9
        onset = {"onset": "amid", "onset_s": into_s} if amid else {"onset": "start", "onset_s": 0.0}
    return (
        {
            "name": job.name,
            "seed": seed,
            "faulty": job.faulty,
            "cause": job.cause or None,
            "why": job.why or None,
            "right": sorted(job.right),
            "tolerable": sorted(job.tolerable),
            "wrong": sorted(job.wrong),
            "culprits": list(job.culprits),
            "sources": [{"file": str(PROGRAMS / each.file), "line": each.line()} for each in job.sources],
            "program": str(PROGRAMS / job.program),
            "first": job.first,
            "then": job.then,
            "around": [repr(each) for each in job.around],
            "stub": job.stub,
        }
        | onset
        | met
    )


def play(job: Job, amid: bool, seed: int, out: Path) -> dict[str, Any]:
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    met = watched_whole(job, out) if job.whole else watched(job, amid, out)
    if job.whole:
        met["pids"] = recorded_pids(out / "trace.db")
    told = truth(job, amid, seed, met | {"rows": rows(out / "trace.db"), "load1": os.getloadavg()[0]})
    (out / "truth.json").write_text(json.dumps(told, indent=1))
    return told


def line(name: str, onset: str, met: dict[str, Any]) -> str:
    before, after, lost = met["steps_per_s_before"], met["steps_per_s_after"], met["loss"]
    figures = [f"{each:8.2f}" if each is not None else "       -" for each in (before, after)]
    return f"{name:24} {onset:6} {' '.join(figures)} {'-' if lost is None else format(lost, '7.1%')}"


def chosen(everything: list[tuple[Job, bool]], only: str, part: str) -> list[tuple[Job, bool]]:
    if only:
        names = set(only.split(","))
        if unknown := names - {job.name for job, _ in everything}:
            raise SystemExit(f"no such job: {', '.join(sorted(unknown))}")
        return [each for each in everything if each[0].name in names]
    number, of = map(int, part.split("/"))
    return everything[number - 1 :: of]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="names, comma-separated")
    parser.add_argument("--part", default="1/1", help="the first third is 1/3")
    parser.add_argument(
        "--rehearse", type=float, nargs="?", const=REHEARSED_S, metavar="SECONDS", help="untraced and short"
    )
    parser.add_argument("--fresh", action="store_true", help="not those again that are in DIR already")
    parser.add_argument("--shares", type=int, default=USUAL_SHARES, help="of the CPU; more on a busy machine")
    parser.add_argument("--within", type=float, default=1e9, metavar="SECONDS", help="begin no job later")
    options = parser.parse_args()
    last_s = time.monotonic() + options.within - LONGEST_S
    options.out.mkdir(parents=True, exist_ok=True)
    with leftovers.alone(), arena(options.shares):
        for job, amid in chosen(drawn(options.seed), options.only, options.part):
            out = options.out / job.name
            if time.monotonic() > last_s:
                break
            if options.fresh and (out / "truth.json").exists():
                continue
            onset = ("amid" if amid else "start") if job.faulty else ""
            try:
                if options.rehearse:
                    out.mkdir(parents=True, exist_ok=True)
                    met = rehearse(job, out, options.rehearse) if not job.whole else None
                else:
                    met = play(job, amid, options.seed, out)
            except (RuntimeError, OSError, subprocess.SubprocessError, sqlite3.Error) as error:
                print(f"{job.name:24} failed: {error}", flush=True)
                continue
            if met:
                weak = job.faulty and (met["loss"] is None or met["loss"] < job.least_loss)
                print(line(job.name, onset, met) + "  does not bite" * weak, flush=True)


if __name__ == "__main__":
    main()
