"""Runs the cases and says how often the diagnosis was right.

    python -m benchmarks.truth.run [--seed N] [--runs N] [--only NAME ...] [--set dev|held-out|all]
                                   [--keep DIR] [--no-twin] [--write] [--verify] [--list]

Needs root. Cases run one after the other: two would be each other's faults. --verify
traces nothing and shows that every fault bites. --write renews docs/truth.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.truth import held_out, leftovers
from benchmarks.truth.cases import SETS, chosen, drawn
from benchmarks.truth.drawn import Case
from benchmarks.truth.explained import explain, there_is_explain
from benchmarks.truth.judge import Verdict, about, judge, judge_twin
from benchmarks.truth.page import failures, page, summary
from benchmarks.truth.play import FAULTY_S, TWIN_S, Played, play
from benchmarks.truth.quiet import QUIET_SHARE, wait_until_quiet
from benchmarks.truth.verify import verify

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "truth.md"
RESULTS = ROOT / "build" / "truth"
HEALTHY_S = 6.0


class Suite:
    """One go through the cases; what was found so far."""

    def __init__(self, options: argparse.Namespace, folder: Path, explained: Callable[[Path], Any]) -> None:
        self._options, self._folder, self._explain = options, folder, explained
        self.verdicts: list[Verdict] = []
        self.broken: list[str] = []
        self.busy: list[float] = []  # before each run, with other things

    def run(self, case: Case, seed: int) -> None:
        """A run that cannot be made is no verdict on the product; it is listed apart."""
        folder = self._folder / f"{case.name}-{seed}"
        began = time.monotonic()
        try:
            self._judge(case, seed, folder)
        except (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
            self.broken.append(f"{case.name}, seed {seed}: {type(error).__name__}: {error}")
            print(f"  BROKEN {self.broken[-1]}", flush=True)
        finally:
            if not self._options.keep:
                shutil.rmtree(folder, ignore_errors=True)
        print(f"  ({time.monotonic() - began:.0f} s)", flush=True)

    def _judge(self, case: Case, seed: int, folder: Path) -> None:
        if case.healthy:
            _, report = self._traced(case, seed, folder / "healthy", True, HEALTHY_S)
            self._add(judge(case, seed, report))
            return
        faulty, report = self._traced(case, seed, folder / "faulty", True, FAULTY_S)
        twin = None
        if not self._options.no_twin:
            twin, twin_report = self._traced(case, seed, folder / "twin", False, TWIN_S)
            self._add(judge_twin(case, seed, twin_report))
        twin_ms = twin.step_ms if twin else None
        self._add(judge(case, seed, report, faulty.culprits, faulty.step_ms, twin_ms))

    def _traced(
        self, case: Case, seed: int, folder: Path, faulty: bool, seconds: float
    ) -> tuple[Played, dict[str, Any]]:
        self.busy.append(wait_until_quiet())
        if self.busy[-1] > QUIET_SHARE:
            print(f"  the machine is {self.busy[-1]:.0%} busy with other things", flush=True)
        played = play(case, drawn(case, seed), folder, faulty=faulty, traced=True, seconds=seconds)
        assert played.db is not None
        report = self._explain(played.db)
        (folder / "report.json").write_text(json.dumps(report, indent=1))
        (folder / "played.json").write_text(json.dumps(asdict(played), default=str))
        return played, about(report, played.pids)

    def _add(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        told = ", ".join(f"{kind} {severity}" for kind, severity in verdict.told) or "nothing"
        named = {True: ", culprit named", False: ", culprit NOT named", None: ""}[verdict.culprit]
        gain = {True: ", gain agrees", False: ", gain does NOT agree", None: ""}[verdict.gain]
        print(f"  {verdict.case}: {verdict.outcome.upper()}: told {told}{named}{gain}", flush=True)


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.truth.run", description="How often the diagnosis is right."
    )
    parser.add_argument("--seed", type=int, help="the same draws again; without it new ones")
    parser.add_argument("--runs", type=int, default=1, help="draws of each case")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="cases whose name begins so")
    parser.add_argument("--set", choices=sorted(SETS), default="all")
    parser.add_argument(
        "--keep",
        type=lambda path: Path(path).resolve(),
        metavar="DIR",
        help="keep recordings and reports there",
    )
    parser.add_argument("--no-twin", action="store_true", help="leave the healthy twins out")
    parser.add_argument("--write", action="store_true", help="write docs/truth.md")
    parser.add_argument("--verify", action="store_true", help="only show that the faults bite; no trace")
    parser.add_argument("--list", action="store_true", help="list the cases")
    chosen_options = parser.parse_args(words)
    if not chosen(chosen_options.set, chosen_options.only) and (chosen_options.only or not SETS["held-out"]):
        if chosen_options.only:
            parser.error(f"no such case: {' '.join(chosen_options.only)}")
        if chosen_options.set == "held-out":
            parser.error("the held-out set is empty")
    return chosen_options


def main(words: Sequence[str]) -> int:
    options = parse(words)
    cases = chosen(options.set, options.only)
    if options.list:
        print("\n".join(f"{case.name:26} {' + '.join(case.expected) or 'healthy'}" for case in cases))
        return 0
    if os.geteuid():
        print(
            "error: this needs root: it makes cgroups, mounts, network namespaces and traces", file=sys.stderr
        )
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is taken away
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    seeds = [seed + number for number in range(options.runs)]
    print(f"seed {seed}", flush=True)
    try:
        with leftovers.alone():
            return run_verify(cases, seeds) if options.verify else run_all(options, cases, seeds)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run_verify(cases: Sequence[Case], seeds: Sequence[int]) -> int:
    bad = False
    for line in verify(cases, seeds):
        print(line, flush=True)
        bad = bad or line.endswith(("RANGE |", "FAILED |", "STEPS |"))
    return int(bad)


def run_all(options: argparse.Namespace, cases: Sequence[Case], seeds: Sequence[int]) -> int:
    if not there_is_explain():
        raise RuntimeError("`ingero explain` is not there: install a version that has it")
    began = machine.moment()
    with tempfile.TemporaryDirectory(prefix="ingero-truth-") as scratch:
        suite = Suite(options, options.keep or Path(scratch), explain)
        for seed in seeds:
            for number, case in enumerate(cases, start=1):
                print(f"[{number}/{len(cases)}] {case.name}, seed {seed}", flush=True)
                suite.run(case, seed)
    finish(options, suite, seeds, began)
    return int(bool(suite.broken))


def finish(options: argparse.Namespace, suite: Suite, seeds: Sequence[int], began: machine.Moment) -> None:
    apart = {case.name for case in held_out.CASES}
    is_apart = [each.case.removesuffix(" (twin)") in apart for each in suite.verdicts]
    sets: dict[str, Sequence[Verdict]] = {
        name: [each for each, away in zip(suite.verdicts, is_apart, strict=True) if away == wanted]
        for name, wanted in (("dev", False), ("held-out", True))
    }
    for name, verdicts in sets.items():
        if verdicts:
            print(f"\n{name}", *summary(verdicts), *failures(verdicts), sep="\n")
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}.json"
    told = {
        "seeds": seeds,
        "busy": suite.busy,
        "verdicts": [asdict(each) for each in suite.verdicts],
        "broken": suite.broken,
    }
    results.write_text(json.dumps(told, indent=1))
    print(f"written: {results.relative_to(ROOT)}")
    if options.write:
        disturbed = sum(share > QUIET_SHARE for share in suite.busy)
        described = machine.describe() | {
            "runs while other things kept the machine busy": f"{disturbed} of {len(suite.busy)}"
        }
        PAGE.write_text(page(sets, described, began.at, seeds, suite.broken), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
