"""Judges everything kept, and says what changed since the verdicts that are kept with it.

    python -m benchmarks.corpus.replay [--accept] [--all] [card|stub]

--accept writes the verdicts of now as those to compare with; --all lists every recording.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus.kept import FOLDER, Truth, database, truths
from benchmarks.truth.judge import AGREES_WITHIN, ALARMING
from ingero.model.report import Report
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range

VERDICTS = FOLDER / "verdicts.json"


@dataclass(frozen=True)
class Verdict:
    """One recording as it is told now."""

    told: list[list[Any]]  # kind, severity
    right: bool
    line: bool | None = None  # None: no line is to blame, or the kind is wrong
    culprit: bool | None = None
    gain: bool | None = None
    pointed: str = ""

    def text(self) -> str:
        told = ", ".join(f"{kind} {severity}" for kind, severity in self.told) or "nothing"
        more = {"line": self.line, "culprit": self.culprit, "gain": self.gain}
        wrong = "".join(f", {name} WRONG" for name, right in more.items() if right is False)
        return f"{'right' if self.right else 'WRONG'}: {told}{wrong} {self.pointed}".rstrip()


def judge(truth: Truth, report: Report) -> Verdict:
    findings = [each for each in report.findings if not truth.pids or each.victim.pid in truth.pids]
    told = [[each.kind, each.severity.value] for each in findings]
    if truth.healthy:
        return Verdict(told, not any(severity in ALARMING for _, severity in told))
    kinds = {kind for kind, _ in told}
    first = findings[0] if findings else None
    if first is None:
        return Verdict(told, False)
    if first.kind not in truth.instead and not (first.kind in truth.expected and set(truth.must) <= kinds):
        return Verdict(told, False)
    source = first.source
    pointed = f"{Path(source.file).name}:{source.line}" if source else "no line"
    line = any(pointed == f"{file}:{number}" for file, number in truth.lines) if truth.lines else None
    named = {who.pid for cause in first.causes for who in cause.who} | {first.victim.pid}
    culprit = any(pid in named for pid, _ in truth.culprits) if truth.culprits else None
    gain = None
    if truth.usual_ms and truth.now_ms and first.gain and len(truth.must) < 2:
        promised = truth.now_ms * (1 - first.gain.share)
        gain = abs(promised - truth.usual_ms) <= AGREES_WITHIN * truth.usual_ms
    return Verdict(told, True, line, culprit, gain, pointed)


def replay(path: Path, truth: Truth) -> Verdict:
    with database(path) as db:
        return judge(truth, get_report(db, Range()))


def replay_all(group: str | None = None) -> dict[str, tuple[Truth, Verdict]]:
    found = truths(group)
    with ProcessPoolExecutor() as pool:
        verdicts = pool.map(replay, *zip(*found, strict=True), chunksize=4) if found else ()
        names = [f"{path.parent.name}/{truth.name}" for path, truth in found]
        return {
            name: (truth, verdict) for name, (_, truth), verdict in zip(names, found, verdicts, strict=True)
        }


def kept_verdicts() -> dict[str, Verdict]:
    if not VERDICTS.exists():
        return {}
    return {name: Verdict(**told) for name, told in json.loads(VERDICTS.read_text()).items()}


def score(judged: Sequence[tuple[Truth, Verdict]]) -> str:
    faults = [each for each in judged if not each[0].healthy]
    healthy = [each for each in judged if each[0].healthy]
    parts = [
        f"{sum(verdict.right for _, verdict in faults)} of {len(faults)} right first",
        f"{sum(not verdict.right for _, verdict in healthy)} alarms in {len(healthy)} healthy",
    ]
    for name in ("line", "culprit", "gain"):
        known = [getattr(verdict, name) for _, verdict in faults if getattr(verdict, name) is not None]
        parts.append(f"{name} {sum(known)} of {len(known)}")
    return ", ".join(parts)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus.replay")
    parser.add_argument("group", nargs="?", choices=("card", "stub"))
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args(words)
    began, before = time.monotonic(), kept_verdicts()
    judged = replay_all(options.group)
    for name, (truth, verdict) in judged.items():
        known = before.get(name)
        if known is not None and known.text() != verdict.text():
            print(f"{name}: was {known.text()}\n{' ' * len(name)}  now {verdict.text()}")
        elif options.all or (known is None and not verdict.right):
            print(f"{name}: {verdict.text()}   [{', '.join(truth.expected) or 'healthy'}]")
    groups = Counter(
        f"{name.partition('/')[0]}{', apart' if t.apart else ''}" for name, (t, _) in judged.items()
    )
    for group in sorted(groups):
        chosen = [
            each
            for name, each in judged.items()
            if f"{name.partition('/')[0]}{', apart' if each[0].apart else ''}" == group
        ]
        print(f"{group}: {score(chosen)}")
    print(f"{len(judged)} recordings in {time.monotonic() - began:.0f} s")
    if options.accept:
        kept = {name: asdict(verdict) for name, (_, verdict) in judged.items()}
        there = {f"{path.parent.name}/{truth.name}" for path, truth in truths()}
        merged = {name: asdict(verdict) for name, verdict in before.items() if name in there} | kept
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(merged[name])}" for name in sorted(merged))
        VERDICTS.write_text(f"{{\n{lines}\n}}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
