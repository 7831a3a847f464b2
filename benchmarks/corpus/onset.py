"""How long after a trouble began the diagnosis names it: kept recordings cut off second by second.

    python -m benchmarks.corpus.onset [card|stub]

Each recording whose trouble begins amid it is judged as it stood 1, 2, 3 ... seconds after the moment the
whole recording says the trouble began. While tracing, the diagnosis looks every few seconds at what was
stored up to the second before: the longest a reader waits is that much more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from statistics import median

from benchmarks.corpus.kept import Truth, database, truths
from benchmarks.corpus.replay import judge
from ingero.agent.diagnosis import EVERY_NS
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Range
from ingero.units import SECOND

AMID = "begins amid"  # in a truth's words
MOST_S = 15
STORED_S = 1  # a window is stored when it is over


def delay_s(path: Path, truth: Truth) -> int | None:
    """Seconds of trouble until it is named right for good; None: not within MOST_S, or not at all."""
    with database(path) as db:
        whole = get_report(db, Range())
        first = next(
            (each for each in whole.findings if not truth.pids or each.victim.pid in truth.pids), None
        )
        if first is None or not judge(truth, whole).right:
            return None
        last_s = min(MOST_S, (whole.window.to_ns - first.first_ns) // SECOND)
        right_from = None
        for after_s in range(1, last_s + 1):
            end = datetime.fromtimestamp((first.first_ns + after_s * SECOND) / SECOND).isoformat()
            right = judge(truth, get_report(db, Range(end=end))).right
            right_from = (right_from or after_s) if right else None
        return right_from


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus.onset")
    parser.add_argument("group", nargs="?", choices=("card", "stub"))
    options = parser.parse_args(words)
    found = [(path, truth) for path, truth in truths(options.group) if AMID in truth.what and truth.expected]
    with ProcessPoolExecutor() as pool:
        delays = list(pool.map(delay_s, *zip(*found, strict=True)))
    for (path, truth), delay in zip(found, delays, strict=True):
        print(f"{path.parent.name}/{truth.name}: {'not told' if delay is None else f'{delay} s'}")
    told = sorted(each for each in delays if each is not None)
    most = told[int(0.9 * (len(told) - 1))]
    print(
        f"{len(told)} of {len(found)} told; median {median(told):g} s, nine of ten within {most} s,", end=" "
    )
    print(f"longest {told[-1]} s; up to {STORED_S + EVERY_NS / SECOND:g} s more until it is looked at")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
