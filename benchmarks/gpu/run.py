"""What a card shows, as files.

    python -m benchmarks.gpu.run --out DIR [--seconds S] [--only NAME ...] overhead|truth|long

Needs root, a card and PyTorch. ingero itself is taken from where PYTHONPATH leads (see
tools/gpu_bundle.sh), or from the environment this runs in.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.gpu import long, overhead, truth


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.run")
    parser.add_argument("what", choices=("overhead", "truth", "long"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, help="of each measurement (overhead, long)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--setting", nargs="+", default=[], choices=sorted(overhead.SETTINGS))
    options = parser.parse_args(words)
    folder = options.out / options.what
    folder.mkdir(parents=True, exist_ok=True)
    if options.what == "long":
        long.run(folder, options.seconds or 600)
        return 0
    if options.what == "overhead":
        costs = overhead.run(folder, options.seconds or 70, options.only, options.setting)
        results = [asdict(each) for each in costs]
    else:
        results = [asdict(each) for each in truth.run(folder, options.seed, options.only)]
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
