"""Seeded runs, each with another fault, rank, onset and other clocks: how many were told right.

    python -m benchmarks.across.run [--seeds 20] [--first 0] [--healthy 3] [--keep FOLDER] [--write]

--write keeps what was said of each seed in measured.json, so that runs can be done in pieces, and
renews their section of docs/fleet.md from all that is kept.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.across.kept import Run, write
from benchmarks.across.stage import BUCKETS, Played, Stage, drawn
from benchmarks.machine import moment

WITHIN_MS = 3.0
# A job whose ranks wait so long for a core, by the kernel's own count, is not healthy: that may be said.
SAID = 0.03
TAKEN = frozenset({"cpu-contention", "noisy-neighbour"})
HEALTHY_SEED = 1000  # and up


def told_ms(title: str) -> float | None:
    found = re.search(r"arrives? ([\d.]+) (µs|ms|s) late", title)
    return float(found[1]) * {"µs": 1e-3, "ms": 1.0, "s": 1e3}[found[2]] if found else None


def wrong(play: Played, answer: dict[str, Any], late_ms: float, waited_share: float) -> list[str]:
    """What is not as it should be."""
    found = answer["findings"]
    if not play.fault:
        true = TAKEN if waited_share >= SAID else frozenset()
        return [f"said of a healthy job: {each['title']}" for each in found if each["kind"] not in true]
    if len(found) != 1:
        return [f"{len(found)} findings instead of one: {[each['title'] for each in found]}"]
    (only,) = found
    said = []
    if only["kind"] != "nccl-straggler":
        said.append(f"kind {only['kind']}")
    if not re.match(rf"Rank {play.rank} on {play.node} ", only["title"]):
        said.append("another rank or node")
    told = told_ms(only["title"])
    if told is None or abs(told - late_ms) > WITHIN_MS:
        said.append(f"late by {told} ms, really {late_ms:.1f} ms")
    main = only["causes"][0]
    if main["bucket"] != BUCKETS[play.fault]:
        said.append(f"cause {main['bucket']}")
    if play.fault == "cores" and [who["comm"] for who in main["who"][:1]] != ["log-shipper"]:
        said.append(f"blames {main['who']}")
    return said


@dataclass(frozen=True)
class Judged:
    """One run's answer against what happened."""

    wrong: list[str]
    titles: list[str]
    told_ms: float | None
    really_ms: float | None
    waited_share: float


def played(play: Played, keep: Path | None = None) -> Judged:
    with tempfile.TemporaryDirectory(prefix="across-") as name:
        stage = Stage(Path(name), play)
        answer = stage.run()
        late_ms, waited = stage.late_ms(), stage.waited_share()
        if keep is not None:
            shutil.copytree(name, keep / f"seed-{play.seed}", dirs_exist_ok=True)
    titles = [each["title"] for each in answer["findings"]]
    told = told_ms(titles[0]) if titles else None
    said = wrong(play, answer, late_ms, waited)
    return Judged(said, titles, told, late_ms if play.fault else None, waited)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--healthy", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    plays = [drawn(seed) for seed in range(options.first, options.first + options.seeds)]
    plays += [drawn(HEALTHY_SEED + options.first + seed, "") for seed in range(options.healthy)]
    failed = 0
    for play in plays:
        before = moment()
        found = played(play, options.keep)
        failed += bool(found.wrong)
        really = "" if found.really_ms is None else f" (really {found.really_ms:.1f} ms)"
        print(f"{'WRONG' if found.wrong else 'right'}  {play.text}", flush=True)
        waited = f"; a rank waited {found.waited_share:.1%} of its time for a core"
        print(f"       {'; '.join(found.titles) or 'nothing found'}{really}{waited}", flush=True)
        for each in found.wrong:
            print(f"       {each}", flush=True)
        if options.write:
            clocks = max(map(abs, play.ahead_ms))
            write(
                Run(
                    play.seed, play.text, found.titles, found.wrong, found.told_ms, found.really_ms,
                    clocks, before.at, round(before.load1, 1), round(found.waited_share, 4),
                )
            )  # fmt: skip
    print(f"{len(plays) - failed} of {len(plays)} runs told right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
