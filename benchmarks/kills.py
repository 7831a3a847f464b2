"""Kills the agent, its keepers and servers at random moments, and looks at what is left.

    python -m benchmarks.kills [--kills 1000] [--seed N] [--seconds S] [--lanes 4]
        [--folder build/kills] [--write]

Needs root. After every kill: each job runs its own code again, the database is sound and can be read,
and what it lacks is counted back from the moment of the kill. The jobs go on through all of it
and say in the end whether any call of theirs failed. Figures are of all runs whose tallies lie in the
folder. Exit code 1: something of this was not so.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from benchmarks import jobs, machine, reliability
from ingero.scenarios import cuda
from ingero.store.reader import Reader
from tests.ebpf.real_runs import Place, Run, children, probed_pages, uprobe_links

STEADY = jobs.WORKLOADS / "hardship" / "steady.c"
TALLIES = "tallies.jsonl"
JOBS = 3
LANES = 4  # agents at a time
MOST_PROBLEMS = 20
PAUSE_US = "20000"
LATEST_S = 3.5  # after the start of a trace, when it is killed
PATIENCE_S, SOON_S = 30.0, 2.0
ALLOWED_S = 2.0  # a window of a second, and the time it takes to store it on a busy machine


@dataclass
class Tally:
    """What came of it."""

    seed: int
    kills: dict[str, int] = field(default_factory=dict)
    lost_s: list[float] = field(default_factory=list)  # before the kill, of recordings that had begun
    problems: list[str] = field(default_factory=list)
    calls: int = 0
    strangers: int = 0  # kills after which somebody else's trace had probes on the jobs

    @property
    def count(self) -> int:
        return sum(self.kills.values())

    def line(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items()))
        return f"{self.count:,} kills ({kinds}), {len(self.problems)} problems"


def wait_until(true: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> str:
    """Empty when it became true."""
    until = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > until:
            return what
        time.sleep(0.02)
    return ""


def own_code(pids: Sequence[int]) -> bool:
    return not any(probed_pages(pid) for pid in pids)


def keepers(run: Run) -> list[int]:
    with contextlib.suppress(OSError):
        return [pid for pid in children(run.pid) if any(uprobe_links(pid))]
    return []


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Kills:
    """One kind of kill is one method; each leaves no trace running."""

    def __init__(self, folder: Path, pids: list[int], tally: Tally) -> None:
        self._folder, self._pids, self.tally = folder, pids, tally
        self._place = Place(folder)
        self._chance = random.Random(tally.seed)

    def one(self) -> None:
        kinds = {"agent": 5, "agent and keepers": 2, "keeper": 2, "server": 1}
        kind = self._chance.choices(list(kinds), list(kinds.values()))[0]
        self.tally.kills[kind] = self.tally.kills.get(kind, 0) + 1
        work = {
            "agent": self._agent,
            "agent and keepers": self._both,
            "keeper": self._keeper,
            "server": self._server,
        }[kind]
        problem = work(self._chance.uniform(0.05, LATEST_S)) or self._left()
        if problem:
            self.tally.problems.append(f"kill {self.tally.count} ({kind}): {problem}")

    @contextlib.contextmanager
    def _trace(self) -> Iterator[Run]:
        words = ("--pid", ",".join(map(str, self._pids)))
        with self._place.tracing(*words, attached=False) as run:
            yield run
        for old in self._folder.glob("run*.*"):
            old.unlink()

    def _agent(self, after_s: float) -> str:
        with self._trace() as run:
            began_s = self._wait(run, after_s)
            kill(run.pid)
            return self._lost(time.time(), began_s)

    def _both(self, after_s: float) -> str:
        with self._trace() as run:
            began_s = self._wait(run, after_s)
            kill(*keepers(run), run.pid)
            return self._lost(time.time(), began_s)

    def _wait(self, run: Run, after_s: float) -> float:
        """Half of the kills come while it starts, half while it records; since when it does."""
        began_s = float("inf")
        if self._chance.random() < 0.5 and not wait_until(run.began, "it began"):
            began_s = time.time()
        time.sleep(after_s)
        return began_s

    def _keeper(self, after_s: float) -> str:
        """The trace goes on, and ends well."""
        with self._trace() as run:
            wait_until(lambda: keepers(run) or run.process.poll() is not None, "")
            time.sleep(after_s / 4)
            victims = keepers(run)
            kill(*self._chance.sample(victims, min(len(victims), self._chance.randint(1, 2))))
            time.sleep(after_s / 4)
            if run.process.poll() is not None:
                return f"the trace ended with its keeper: {run.err[-300:]}"
            wait_until(run.began, "")
            try:
                code = run.stop(signal.SIGTERM)
            except subprocess.TimeoutExpired as late:
                return f"the trace did not end within {late.timeout:g} s of being asked to"
            return f"the trace ended with {code}: {run.err[-300:]}" if code else ""

    def _server(self, after_s: float) -> str:
        """Reads the database, which must not be the worse for it."""
        if not self._place.db.exists():
            return ""
        words = ("dashboard", "--addr", "http://127.0.0.1:0", "-d", str(self._place.db))
        server = Run(self._place, words, {})
        time.sleep(after_s)
        kill(server.pid, *children(server.pid))
        server.kill()
        return ""

    def _lost(self, killed_s: float, began_s: float) -> str:
        """What the recording lacks of the time before the kill; those that had not begun lack nothing."""
        if began_s > killed_s:
            return ""
        with Reader(self._place.db) as reader:
            last = reader.recordings()[-1]
        lost_s = killed_s - max(last.last_ns / 1e9, began_s)
        self.tally.lost_s.append(lost_s)
        return f"{lost_s:.2f} s are missing" if lost_s > ALLOWED_S else ""

    def _left(self) -> str:
        """What must hold after any kill."""
        if problem := self._not_own_code():
            return problem
        if self._place.db.exists() and not self._place.sound():
            return "the database is damaged"
        return ""

    def _not_own_code(self) -> str:
        """Another trace of everything here may have found the jobs: its probes are none of ours."""
        for patience_s in (SOON_S, PATIENCE_S):
            if not wait_until(lambda: own_code(self._pids), "not yet", patience_s):
                return ""
            left = {path: holders(path) for pid in self._pids for path in probed_pages(pid)}
            if left and all(pids and all(map(is_strangers, pids)) for pids in left.values()):
                self.tally.strangers += 1
                return ""
        told = [f"{path}: {', '.join(map(str, pids)) or 'nobody'}" for path, pids in left.items()]
        return f"a job has a breakpoint left in its code, held by {'; '.join(told)}"


def holders(path: str) -> list[int]:
    """Processes with a link on that file."""
    pids = [int(each.name) for each in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if any(path in link for link in uprobe_links(pid))]


def is_strangers(pid: int) -> bool:
    """A keeper whose agent lives and was not started by us; one that was left alone has no agent."""
    above = parent(pid)
    if above <= 1:
        return False
    while above > 1 and above != os.getpid():
        above = parent(above)
    return above != os.getpid()


def parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return 0


def run(count: int, seed: int, seconds: float, lanes: int = LANES) -> Tally:
    """Several agents at a time, each with jobs and a database of its own: a kill is mostly waiting."""
    until, program = time.monotonic() + seconds, jobs.compiled(STEADY)
    chance = random.Random(seed)
    tallies = [Tally(chance.getrandbits(32)) for _ in range(lanes)]
    shares = [count // lanes + (at < count % lanes) for at in range(lanes)]
    with futures.ThreadPoolExecutor(lanes) as pool:
        running = [
            pool.submit(_lane, program, tally, share, until)
            for tally, share in zip(tallies, shares, strict=True)
        ]
    for each in running:
        each.result()
    return together(tallies, seed)


def _own_libraries(folder: Path) -> dict[str, str]:
    """Files that no other lane's agent has probes on."""
    own = folder / "lib"
    if not own.exists():
        shutil.copytree(cuda.stub_dir(), own)
    return {"LD_LIBRARY_PATH": str(own)}


def _lane(program: Path, tally: Tally, count: int, until: float) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="ingero-kills-"))
        stack.callback(shutil.rmtree, folder)
        them = [
            stack.enter_context(jobs.job(program, PAUSE_US, **_own_libraries(folder))) for _ in range(JOBS)
        ]
        for each in them:
            each.start()
        kills = Kills(folder, [each.pid for each in them], tally)
        while tally.count < count and time.monotonic() < until and len(tally.problems) < MOST_PROBLEMS:
            kills.one()
        for each in them:
            each.start()
            said = each.answer()
            tally.calls += int(said["launches"])
            if said["failed"]:
                tally.problems.append(f"{said['failed']} calls of a job failed")


def together(tallies: Iterable[Tally], seed: int = 0) -> Tally:
    whole, kills = Tally(seed), Counter[str]()
    for each in tallies:
        kills.update(each.kills)
        whole.lost_s += each.lost_s
        whole.problems += each.problems
        whole.calls += each.calls
        whole.strangers += each.strangers
    whole.kills = dict(kills)
    return whole


def all_of(folder: Path) -> Tally:
    """Every run so far, as one."""
    return together(msgspec.json.Decoder(Tally).decode_lines((folder / TALLIES).read_bytes()))


def _strangers(tally: Tally) -> str:
    if not tally.strangers:
        return ""
    return f" After {tally.strangers} of the kills another trace of this machine had probes on the jobs."


def section(tally: Tally) -> str:
    lost = np.array(tally.lost_s or [0.0])
    return "\n".join(
        [
            f"{tally.line()}. The jobs made {tally.calls:,} launches meanwhile.{_strangers(tally)}",
            "",
            "| of a recording, missing before the kill | s |",
            "|---|--:|",
            f"| median of {len(tally.lost_s)} | {np.median(lost):.2f} |",
            f"| 99th percentile | {np.percentile(lost, 99):.2f} |",
            f"| most | {lost.max():.2f} |",
            *(["", "Problems: " + "; ".join(tally.problems) + "."] if tally.problems else []),
        ]
    )


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description="Kill it at any moment.")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--lanes", type=int, default=LANES, help="so many agents at a time")
    parser.add_argument("--folder", type=Path, default=Path("build/kills"))
    parser.add_argument("--write", action="store_true", help="put the figures into docs/reliability.md")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    chosen = parse(words)
    if not machine.may_trace():
        return 1
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    print(f"seed {seed}", flush=True)
    tally = run(chosen.kills, seed, chosen.seconds, chosen.lanes)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with (chosen.folder / TALLIES).open("ab") as out:
        out.write(msgspec.json.encode(tally) + b"\n")
    print(section(tally))
    if chosen.write:
        reliability.write("kills", section(all_of(chosen.folder)))
    return int(bool(tally.problems))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
