"""Plays the corpus on a card: each job recorded as a user would, with its truth beside it.

    python -m benchmarks.gpu.corpus.play --out DIR --seed N [--set SET] [--only NAME ...]

Leaves NAME.db.xz and NAME.json for each; corpus/keep.py takes them into the repository.
Needs root, a card and PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import lzma
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.gpu.corpus.cases import SETS as KNOWN
from benchmarks.gpu.corpus.cases import Case
from benchmarks.gpu.corpus.third import THIRD
from benchmarks.gpu.corpus.unmet import UNMET

SETS = {**KNOWN, "unmet": UNMET, "third": THIRD}
PROGRAMS = Path(__file__).parent / "programs"
HEALTHY_BEFORE_S = 6.0
TROUBLED_S = 6.0
WHOLE_S = 6.5
READY_S = 40
HOG = "while True: pass"
GROUP = Path("/sys/fs/cgroup/ingero-corpus")
PORT = 47821


class Playing:
    """One job, importing what it needs while another is recorded."""

    def __init__(self, case: Case, seed: int, folder: Path, cores: Sequence[int]) -> None:
        folder.mkdir(parents=True)
        self.case, self.draw, self.folder, self.cores = case, case.drawn(seed), folder, list(cores)
        settings = case.settings | {"work": case.work, "troubles": self.draw.troubles}
        self.settings, self.book = folder / "settings.json", folder / "book"
        self.settings.write_text(json.dumps(settings))
        self.log = (folder / "job.log").open("w")
        self.culprits: list[int] = []
        self.process: Any = None if case.whole else self._start([])

    def words(self) -> list[str]:
        listed = ",".join(map(str, self.cores))
        program = PROGRAMS / self.case.program
        return ["taskset", "-c", listed, sys.executable, *map(str, (program, self.settings, self.book))]

    def _start(self, before: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*before, *self.words()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ
            | {
                "INGERO_RUN_DIR": str(self.folder / "run"),
                "SCRATCH": str(self.folder),
                "PEER_PORT": str(PORT),
            },
        )

    def say(self, word: str) -> None:
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def until_ready(self) -> int:
        late = threading.Timer(READY_S, self.process.kill)
        late.start()
        try:
            return self._ready()
        finally:
            late.cancel()

    def _ready(self) -> int:
        while line := self.process.stdout.readline():
            if line.startswith("ready "):
                return int(line.split()[1])
        raise RuntimeError(f"{self.case.name} did not start: {(self.folder / 'job.log').read_text()[-600:]}")

    def end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()

    def bite(self, ends: contextlib.ExitStack, pid: int) -> int:
        for name in self.case.around:
            self.culprits += AROUND[name](self, ends, pid)
        if self.draw.troubles:
            self.say("bite")
        return time.time_ns()


def hogs(job: Playing, ends: contextlib.ExitStack, _: int, count: int | None = None) -> list[int]:
    listed = ",".join(map(str, job.cores))
    words = ["taskset", "-c", listed, sys.executable, "-c", HOG]
    started = [subprocess.Popen(words) for _ in range(count or 2 * len(job.cores))]
    for each in started:
        ends.callback(each.wait)
        ends.callback(each.kill)
    return [each.pid for each in started]


def hogs_elsewhere(job: Playing, ends: contextlib.ExitStack, _: int) -> list[int]:
    """On cores the job may not use: nobody's trouble."""
    others = [core for core in sorted(os.sched_getaffinity(0)) if core not in job.cores][-2:]
    for core in others:
        hog = subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", HOG])
        ends.callback(hog.wait)
        ends.callback(hog.kill)
    return []


def quota(_: Playing, ends: contextlib.ExitStack, pid: int) -> list[int]:
    GROUP.mkdir(exist_ok=True)
    (GROUP / "cgroup.procs").write_text(str(pid))
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            (GROUP / "cgroup.procs").write_text(child)
    (GROUP / "cpu.max").write_text("45000 100000")
    ends.callback(lambda: (GROUP / "cpu.max").write_text("max 100000"))
    return []


def other_job(job: Playing, ends: contextlib.ExitStack, ms: float, pause: float) -> list[int]:
    others = [core for core in sorted(os.sched_getaffinity(0)) if core not in job.cores][-3:]
    listed = ",".join(map(str, others))
    process = job_beside(
        job, "taskset", "-c", listed, sys.executable, PROGRAMS / "burst.py", str(ms), str(pause)
    )
    ends.callback(process.kill)
    process.start()
    return [process.pid]


def job_beside(job: Playing, *words: str | Path) -> jobs.Job:
    """Made before it is needed: importing takes seconds."""
    made: jobs.Job | None = BESIDE.pop(job.case.name, None)
    return made or jobs.Job(*words)


BESIDE: dict[str, jobs.Job] = {}


def peer(_: Playing, ends: contextlib.ExitStack, __: int) -> list[int]:
    server = subprocess.Popen([sys.executable, PROGRAMS / "answer.py", str(PORT)])
    ends.callback(server.wait)
    ends.callback(server.kill)
    time.sleep(0.5)
    return [server.pid]


AROUND: dict[str, Any] = {
    "hogs": hogs,
    "one-hog": lambda job, ends, pid: hogs(job, ends, pid, 1),
    "hogs-elsewhere": hogs_elsewhere,
    "quota": quota,
    "second-job": lambda job, ends, _: other_job(job, ends, 1000, 0),
    "burst-job": lambda job, ends, _: other_job(job, ends, 450, 1100),
    "peer": peer,
}


def played(job: Playing) -> dict[str, Any]:
    """Its recording is made; the truth about it."""
    case, draw = job.case, job.draw
    with contextlib.ExitStack() as ends:
        ends.callback(lambda: job.process.kill() if job.process else None)
        job.say("go")
        pid = job.until_ready()
        bitten_ns = 0
        if draw.from_start:
            bitten_ns = job.bite(ends, pid)
            time.sleep(1.5)
        with jobs.tracing(job.folder, "--pid", str(pid)) as trace:
            if not draw.from_start:
                time.sleep(HEALTHY_BEFORE_S)
                bitten_ns = job.bite(ends, pid)
            time.sleep(TROUBLED_S + 1.5 * case.healthy)
            if draw.to_the_end:
                job.end()
            trace.stop()
        job.end()
    return truth(job, pid, 0 if case.healthy else bitten_ns)


def played_whole(job: Playing) -> dict[str, Any]:
    words = [*jobs.INGERO, "trace", "--no-tui", "--db", str(job.folder / "trace.db"), "--"]
    job.process = job._start(words)
    with contextlib.ExitStack() as ends:
        ends.callback(job.process.kill)
        job.say("go")
        pid = job.until_ready()
        time.sleep(WHOLE_S)
        job.end()
    return truth(job, pid, 0)


def truth(job: Playing, pid: int, bitten_ns: int) -> dict[str, Any]:
    case = job.case
    book: dict[str, Any] = {"bitten": 0, "ends": []}
    if job.book.exists():
        book = json.loads(job.book.read_text())
    before = [at for at in book["ends"] if book["bitten"] and at < book["bitten"]]
    before = before[len(before) // 2 :]  # the first ones were warming up
    after = [at for at in book["ends"] if at > book["bitten"] + 5e8]
    return {
        "case": case.name,
        "expected": list(case.expected),
        "must": list(case.must),
        "from_start": job.draw.from_start,
        "to_the_end": job.draw.to_the_end or case.whole,
        "troubles": job.draw.troubles,
        "around": list(case.around),
        "work": case.work,
        "pid": pid,
        "culprits": job.culprits,
        "bitten_ns": bitten_ns,
        "usual_ms": step_ms(before),
        "now_ms": step_ms(after),
        "lines": marked([name for name, _ in job.draw.troubles]) if case.lined else [],
    }


def step_ms(ends: list[int]) -> float | None:
    return round((ends[-1] - ends[0]) / (len(ends) - 1) / 1e6, 3) if len(ends) > 2 else None


def marked(names: list[str]) -> list[list[Any]]:
    """Lines of the programs that are to blame: file and number."""
    found: list[list[Any]] = []
    for path in sorted(PROGRAMS.glob("*.py")):
        for number, text in enumerate(path.read_text().splitlines(), start=1):
            if set(text.partition("# at:")[2].split()) & set(names):
                found.append([path.name, number])
    return found


def compress(folder: Path, out: Path, name: str, told: dict[str, Any]) -> None:
    (out / f"{name}.json").write_text(json.dumps(told))
    (out / f"{name}.db.xz").write_bytes(lzma.compress((folder / "trace.db").read_bytes(), preset=3))


def following(case: Case, seed: int, scratch: Path, turn: int) -> Playing:
    """Alternates between two sets of cores, so that importing disturbs nobody."""
    half = sorted(os.sched_getaffinity(0))
    cores = half[: case.cores] if turn % 2 else half[8 : 8 + case.cores]
    for name, pause in (("second-job", "0"), ("burst-job", "1100")):
        if name in case.around and case.name not in BESIDE:
            BESIDE[case.name] = jobs.Job(
                "taskset", "-c", "7,15", sys.executable, PROGRAMS / "burst.py", "450", pause
            )
    return Playing(case, seed, scratch / case.name, cores)


def run(cases: Sequence[Case], seed: int, out: Path) -> Iterator[str]:
    out.mkdir(parents=True, exist_ok=True)
    threads: list[threading.Thread] = []
    with tempfile.TemporaryDirectory(prefix="corpus-") as scratch:
        waiting: Playing | None = following(cases[0], seed, Path(scratch), 0)
        for turn, case in enumerate(cases):
            job, began = waiting, time.monotonic()
            assert job is not None
            waiting = (
                following(cases[turn + 1], seed, Path(scratch), turn + 1) if turn + 1 < len(cases) else None
            )
            try:
                told = (played_whole if case.whole else played)(job)
            except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                yield f"{case.name}: BROKEN: {type(error).__name__}: {error}"
                continue
            saving = threading.Thread(target=compress, args=(job.folder, out, case.name, told))
            saving.start()
            threads.append(saving)
            yield (
                f"{case.name}: {told['usual_ms']} -> {told['now_ms']} ms, {told['troubles']}"
                f" {'start' if told['from_start'] else 'amid'}; {time.monotonic() - began:.0f} s"
            )
        for each in threads:
            each.join()


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.corpus.play")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--set", choices=sorted(SETS), default="all")
    parser.add_argument("--only", nargs="+", default=[])
    options = parser.parse_args(words)
    cases = [case for case in SETS[options.set] if not options.only or case.name in options.only]
    for line in run(cases, options.seed, options.out):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
