"""Seeded runs, each with another fault, rank, onset and other clocks: how many were told right.

python -m benchmarks.across.run [--seeds 20] [--first 0] [--healthy 3] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.across.stage import BUCKETS, Played, Stage, drawn

WITHIN_MS = 3.0
COUNTED = ("CRITICAL", "HIGH", "MEDIUM", "LOW")


def told_ms(title: str) -> float | None:
    found = re.search(r"arrives? ([\d.]+) (µs|ms|s) late", title)
    return float(found[1]) * {"µs": 1e-3, "ms": 1.0, "s": 1e3}[found[2]] if found else None


def wrong(play: Played, answer: dict[str, Any], late_ms: float) -> list[str]:
    """What is not as it should be."""
    found = answer["findings"]
    if not play.fault:
        return [f"said of a healthy job: {each['title']}" for each in found]
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


def played(play: Played, keep: Path | None = None) -> tuple[list[str], str]:
    """What is wrong with one run's answer, and what it said."""
    with tempfile.TemporaryDirectory(prefix="across-") as name:
        stage = Stage(Path(name), play)
        answer = stage.run()
        late_ms = stage.late_ms()
        if keep is not None:
            shutil.copytree(name, keep / f"seed-{play.seed}", dirs_exist_ok=True)
        titles = "; ".join(each["title"] for each in answer["findings"]) or "nothing found"
        return wrong(play, answer, late_ms), f"{titles} (really {late_ms:.1f} ms)"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--healthy", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    plays = [drawn(seed) for seed in range(options.first, options.first + options.seeds)]
    plays += [drawn(1000 + options.first + seed, "") for seed in range(options.healthy)]
    failed = 0
    for play in plays:
        said, titles = played(play, options.keep)
        failed += bool(said)
        print(f"{'WRONG' if said else 'right'}  {play.text}\n       {titles}", flush=True)
        for each in said:
            print(f"       {each}", flush=True)
    print(f"{len(plays) - failed} of {len(plays)} runs told right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
