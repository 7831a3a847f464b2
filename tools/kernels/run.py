"""`make test-kernels`: fetch kernels, boot each with the same root, collect what its tests say.

    python -m tools.kernels.run [--only NAME] [--renew] [--image FILE ARCH SHAPES] [--at-once N]

--image tries a kernel of one's own: FILE is a vmlinuz. --at-once: each takes a core. What cannot be had
is said and fails the run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.kernels import image, results
from tools.kernels.machine import Outcome, boot
from tools.kernels.packages import Archive, UnavailableError, unpack

FOLDER = Path("build/kernels").absolute()
MATRIX = Path(__file__).with_name("matrix.toml")


def kernel_of(row: dict[str, Any], renew: bool) -> Path:
    """Its vmlinuz, fetched once."""
    if "image" in row:
        return Path(row["image"])
    architecture = row["architecture"]
    archive = Archive(row["suite"], architecture, FOLDER / "apt")
    if renew:
        archive.renew()
    packages = archive.fetch([f"linux-image-cloud-{architecture}"], only=r"^linux-(image|binary)-\d")
    folder = FOLDER / "unpacked" / f"{row['suite']}-{architecture}"
    found = list(folder.glob("**/vmlinuz*"))
    if renew or not found:
        unpack(packages, folder)
        found = list(folder.glob("**/vmlinuz*"))
    if not found:
        raise UnavailableError(f"no kernel in {', '.join(each.name for each in packages)}")
    return found[0]


def try_one(row: dict[str, Any], kernel: Path, root: Path) -> dict[str, Any]:
    """What goes into the file of what was tried."""
    log = FOLDER / f"{row['name'].replace(' ', '-').replace(',', '')}.log"
    words = f"INGERO_SHAPES={','.join(row['shapes'])} {row.get('words', '')}"
    words += f" INGERO_PREEMPT={row['preempt']} preempt={row['preempt']}" if "preempt" in row else ""

    def tell(text: str) -> None:
        print(f"{row['name']}: {text}", flush=True)

    outcome = boot(kernel, root, row["architecture"], words, row.get("clock", "own"), log, tell)
    hung = [] if outcome.ended else [f"it did not come to its end: {outcome.last_step}"]
    failed = sorted(outcome.failed) + hung
    _say(row, outcome, failed, log)
    return {
        "name": row["name"],
        "release": outcome.facts.get("release", "unknown"),
        "machine": outcome.facts.get("machine", image.PLATFORM[row["architecture"]]),
        "shapes": outcome.facts.get("shapes", []),
        "tried": datetime.now(UTC).date().isoformat(),
        "not_there": outcome.facts.get("not_there", []),
        "failed": failed,
    }


def _say(row: dict[str, Any], outcome: Outcome, failed: list[str], log: Path) -> None:
    passed = sum(each["outcome"] == "passed" for each in outcome.tests.values())
    print(
        f"{row['name']}: {outcome.facts.get('release', 'unknown')}, {passed} passed, {len(failed)} failed",
        end="",
    )
    print(f", {outcome.took_s:.0f} s ({log})")
    for name in failed:
        why = (outcome.failed.get(name) or "").strip().splitlines()
        print(f"  failed: {name}: {why[-1] if why else 'see the log'}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("--image", nargs=3, metavar=("FILE", "ARCH", "SHAPES"))
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    rows = [row for row in tomllib.loads(MATRIX.read_text())["kernel"] if options.only in row["name"]]
    if options.image:
        path, architecture, shapes = options.image
        name = Path(path).name
        rows = [{"name": name, "image": path, "architecture": architecture, "shapes": shapes.split(",")}]
    version = f"py{sys.version_info.major}.{sys.version_info.minor}"
    ready, missing, roots = [], [], {}
    for row in rows:
        try:
            architecture = row["architecture"]
            kernel = kernel_of(row, options.renew)
            if architecture not in roots:
                roots[architecture] = image.build(architecture, FOLDER, Path("build").absolute() / version)
            ready.append((row, kernel, roots[architecture]))
        except (UnavailableError, OSError) as error:
            missing.append(row["name"])
            print(f"{row['name']}: NOT TRIED: {error}", flush=True)
    with ThreadPoolExecutor(options.at_once) as pool:
        found = list(pool.map(lambda each: try_one(*each), ready))
    results.save(found)
    return 1 if missing or any(each["failed"] for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
