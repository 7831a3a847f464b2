"""Runs the benchmarks, prints their figures, and writes docs/overhead.md after a full run.

    python -m benchmarks.run [--quick] [NAME ...]

--quick takes less than a minute, leaves out the large database and writes nothing.
With names only those are run, at full length, and nothing is written either, save the
section of a benchmark that has its place on another page (its PAGE).
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import machine
from benchmarks.figures import Section, missed, unsure
from benchmarks.page import page, with_section
from ingero.errors import IngeroError

PAGE = Path(__file__).parent.parent / "docs" / "overhead.md"
# Attaching comes last: the kernel is busy for a while after perf probes.
NAMES = (
    "probe_cost", "counts", "walk_cost", "locked_walk", "clock_walk", "agent_cost", "sched_cost", "memory",
    "growth", "ring_drain", "store_rows", "start_up", "export_speed", "dashboard_speed", "label_cost",
    "metrics_cost", "fan_out", "collector", "attach_time",
)  # fmt: skip


def page_of(name: str) -> Path:
    """Where its section stands."""
    return PAGE.parent / getattr(importlib.import_module(f"benchmarks.{name}"), "PAGE", PAGE.name)


def run_one(name: str, quick: bool) -> Section:
    """A benchmark that fails is said on the page and does not keep the others from running."""
    begin = time.monotonic()
    print(f"\n{name} ...", flush=True)
    try:
        section: Section = importlib.import_module(f"benchmarks.{name}").measure(quick)
    except (IngeroError, OSError, RuntimeError, ValueError) as error:
        section = Section(name, (), "", "", problem=f"{type(error).__name__}: {error}")
    show(section)
    print(f"  ({time.monotonic() - begin:.0f} s)", flush=True)
    return section


def show(section: Section) -> None:
    for figure in section.figures:
        target = f"   {figure.target}: {figure.verdict}" if figure.target else ""
        print(f"  {figure.what:58} {figure.value}{target}")
    for note in (*section.notes, *([section.problem] if section.problem else [])):
        print(f"  {note}")


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description="Measure what ingero costs."
    )
    parser.add_argument("--quick", action="store_true", help="under a minute; writes nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these: {' '.join(NAMES)}")
    chosen = parser.parse_args(words)
    unknown = set(chosen.names) - set(NAMES)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return chosen


def main(words: Sequence[str]) -> int:
    chosen = parse(words)
    if not machine.may_trace():
        return 1
    before = machine.moment()
    print(f"load average {before.load1:.2f}, other traces {before.other_traces}")
    made = {name: run_one(name, chosen.quick) for name in chosen.names or NAMES}
    sections = list(made.values())
    print("\n" + "\n".join([*(missed(sections) or ["every target met"]), *unsure(sections)]))
    elsewhere = {name: place for name in made if (place := page_of(name)) != PAGE}
    for name, place in elsewhere.items():
        if not chosen.quick and not made[name].problem:
            place.write_text(with_section(place.read_text(encoding="utf-8"), made[name]), encoding="utf-8")
            print(f"written: {place.relative_to(PAGE.parent.parent)}")
    if not chosen.quick and not chosen.names:
        sections = [section for name, section in made.items() if name not in elsewhere]
        PAGE.write_text(page(sections, machine.describe(), before, machine.moment()), encoding="utf-8")
        print(f"written: {PAGE.relative_to(PAGE.parent.parent)}")
    return int(any(section.problem for section in sections))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
