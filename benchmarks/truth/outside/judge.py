"""Judges what `ingero explain` says of the outside jobs that were played.

    python -m benchmarks.truth.outside.judge FOLDER

A first finding of MEDIUM or above of a kind that the truth calls right counts as right; one that it calls
tolerable (true, but not the cause) is listed apart, so is silence. A healthy job must be told nothing of
MEDIUM or above.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.truth.judge import ALARMING
from ingero.model.finding import Finding
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range


def judge(truth: dict[str, Any], findings: Sequence[Finding]) -> tuple[str, str]:
    """How it was judged, and what of line and culprit is right where the kind is."""
    told = [each for each in findings if each.severity in ALARMING and each.victim.pid in truth["pids"]]
    if not truth["faulty"]:
        return ("alarm" if told else "quiet"), ""
    if not told:
        return "silent", ""
    first = told[0]
    if first.kind not in truth["right"]:
        return ("tolerable" if first.kind in truth["tolerable"] else "wrong"), ""
    more = []
    if truth["sources"]:
        lines = {(Path(each["file"]).name, each["line"]) for each in truth["sources"]}
        source = first.source
        more.append("line" if source and (Path(source.file).name, source.line) in lines else "other line")
    if truth["culprit_pids"]:
        named = {who.pid for cause in first.causes for who in cause.who} | {first.victim.pid}
        more.append("culprit" if named & {each["pid"] for each in truth["culprit_pids"]} else "other culprit")
    return "right", ", ".join(more)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.outside.judge")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(words)
    sums: Counter[str] = Counter()
    for path in sorted(options.folder.glob("*/truth.json")):
        truth = json.loads(path.read_text())
        findings = get_report(path.with_name("trace.db"), Range()).findings
        how, more = judge(truth, findings)
        sums.update((how, *more.split(", ")) if more else (how,))
        told = ", ".join(f"{each.kind} {each.severity.value}" for each in findings[:3]) or "nothing"
        loss = f"{truth['loss']:.0%}" if truth["faulty"] else ""
        print(f"{truth['name']:24} {loss:>5} {how:9} {told}  [{', '.join(truth['right'])}] {more}")
    print(", ".join(f"{count} {name}" for name, count in sums.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
