"""Real training jobs with one thing wrong, or nothing: was the right thing said first?

Results are files: the recording, the report and the verdict of each case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.gpu.around import JOBS, around
from benchmarks.gpu.cases import CASES, Case
from benchmarks.truth.judge import ALARMING

WATCHED_S = 8.0
SCRIPT = JOBS / "train.py"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One case as it was told."""

    case: str
    expected: str
    amount: float
    told: list[tuple[str, str, float]]  # kind, severity, share of wall time
    right: bool
    line: str  # what was pointed to
    line_right: bool | None  # None: there is no line to blame
    named: bool | None
    steps: int
    step_ms: float
    losses: dict[str, int]
    overhead: dict[str, Any]


class Started:
    """A case's job, importing what it needs while another is watched."""

    def __init__(self, case: Case, seed: int, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.case, self.folder, self.amount = case, folder, case.drawn(seed)
        self.cores = sorted(os.sched_getaffinity(0))[: case.cores]
        settings = {"fault": case.fault, "model": case.model, "amount": self.amount, "cold": case.cold}
        (folder / "settings.json").write_text(json.dumps(settings))
        words = ("taskset", "-c", ",".join(map(str, self.cores)), sys.executable, SCRIPT)
        with (folder / "job.log").open("w") as log:
            self.process = subprocess.Popen(
                [*map(str, words), str(folder / "settings.json"), str(folder / "book")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {**case.environment, "CHECKPOINTS": str(folder)},
            )

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def until_ready(self) -> int:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        if words[:1] != ["ready"]:
            raise RuntimeError(
                f"{self.case.name} did not start: {(self.folder / 'job.log').read_text()[-400:]}"
            )
        return int(words[1])

    def end(self) -> None:
        """Its book is written when its input ends."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()


def run(folder: Path, seed: int, only: list[str]) -> list[Verdict]:
    chosen = [case for case in CASES if not only or case.name in only]
    verdicts: list[Verdict] = []
    waiting = Started(chosen[0], seed, folder / chosen[0].name)
    for case, following in zip(chosen, [*chosen[1:], None], strict=True):
        job, began = waiting, time.monotonic()
        if following:
            waiting = Started(following, seed, folder / following.name)
        try:
            verdicts.append(_judged(job))
        except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            print(f"{case.name}: BROKEN: {type(error).__name__}: {error}", flush=True)
            job.process.kill()
            continue
        (job.folder / "verdict.json").write_text(json.dumps(asdict(verdicts[-1])))
        print(_said(verdicts[-1], time.monotonic() - began), flush=True)
    return verdicts


def _said(verdict: Verdict, took_s: float) -> str:
    told = ", ".join(f"{kind} {severity} {share:.0%}" for kind, severity, share in verdict.told) or "nothing"
    lines = {True: f"line right ({verdict.line})", False: f"line WRONG ({verdict.line})", None: verdict.line}
    named = {True: "named", False: "NOT named", None: ""}[verdict.named]
    right = "right" if verdict.right else "WRONG"
    return (
        f"{verdict.case}: {right}: {told}; {lines[verdict.line_right]} {named}; "
        f"{verdict.step_ms:.2f} ms a step; cost {verdict.overhead.get('share')}; {took_s:.0f} s"
    )


def _judged(job: Started) -> Verdict:
    case, folder = job.case, job.folder
    if not case.cold:
        job.go()
    pid = job.until_ready()
    with around(case.around, job.cores, folder) as culprits:
        if culprits:
            time.sleep(2)
        with jobs.tracing(folder, "--pid", str(pid)) as trace:
            if case.cold:
                job.go()
            time.sleep(WATCHED_S + 8 * case.cold)
            trace.stop()
    job.end()
    return judge(case, job.amount, explained(trace.db, folder), culprits, folder / "book")


def explained(db: Path, folder: Path) -> dict[str, Any]:
    words = [*jobs.INGERO, "explain", "--json", "--db", str(db)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=jobs.environment(folder))
    (folder / "report.json").write_text(done.stdout)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def judge(case: Case, amount: float, report: dict[str, Any], culprits: list[int], book: Path) -> Verdict:
    findings = report["findings"]
    told = [
        (each["kind"], each["severity"], (each["effect"] or {}).get("wall_share") or 0.0) for each in findings
    ]
    if case.healthy:
        right = not any(severity in ALARMING for _, severity, _ in told)
    else:
        right = bool(told) and told[0][0] in {case.expected, *case.instead}
    first = findings[0] if findings else None
    source = first["source"] if first else None
    line = f"{Path(source['file']).name}:{source['line']}" if source else "no line"
    times = array("q")
    if book.exists():
        times.frombytes(book.read_bytes())
    return Verdict(
        case.name,
        case.expected,
        amount,
        told,
        right,
        line,
        _line_right(case, source) if case.lined and right else None,
        _named(first, culprits) if culprits and not case.healthy else None,
        len(times),
        sum(times) / max(len(times), 1) / 1e6,
        {each["reason"]: each["count"] for each in report["losses"]},
        report["overhead"],
    )


def _line_right(case: Case, source: dict[str, Any] | None) -> bool:
    if not source or Path(source["file"]).name != SCRIPT.name:
        return False
    text = SCRIPT.read_text().splitlines()[source["line"] - 1]
    return case.fault in text.partition("# fault:")[2].split()


def _named(finding: dict[str, Any] | None, culprits: list[int]) -> bool:
    who = [each["pid"] for cause in (finding or {"causes": []})["causes"] for each in cause.get("who", [])]
    return any(pid in culprits for pid in who)
