"""What was said of each seed, the last time it was played, and the section of docs/fleet.md made of it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from benchmarks.figures import Figure, Section
from benchmarks.page import with_section

TITLE = "How often the late rank is found"
PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"
KEPT = Path(__file__).with_name("measured.json")


class Run(msgspec.Struct, frozen=True):
    """One seed."""

    seed: int
    text: str
    titles: list[str]
    wrong: list[str]
    told_ms: float | None
    really_ms: float | None  # None: nothing was wrong with the job
    clocks_ms: float  # the clock that was furthest off
    at: str
    load1: float
    waited_share: float = 0.0  # of its time the rank that waited most for a core did so


METHOD = """\
`make bench-across`: four nodes as network namespaces, each with an agent, a server and a clock of its
own; two of eight ranks on each, which meet through a stub of NCCL. A seed draws the rank, its fault (a
neighbour on its core, its own work, a sleep, the disk), the step at which it begins, and the clocks.
`explain --nodes` is asked over TLS; how late the rank really was, the ranks tell by the clock all
namespaces share. Right: one finding, of that rank on that node, the right cause first, the lateness
within 3 ms. Every seed counts as it was played last."""
RESOLVES = """\
That clocks, addresses and separate recordings do not mislead it. The nodes share two cores and one
kernel, so their noise is larger than that of nodes, and a network's delay is not in it. Recorded times
are shifted in the program: the kernel has no namespace for the time of day."""


def write(run: Run) -> None:
    """Keep one, and renew the page."""
    runs = {each.seed: each for each in known()} | {run.seed: run}
    kept = [runs[seed] for seed in sorted(runs)]
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
    PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), section(kept)), encoding="utf-8")


def known() -> list[Run]:
    return msgspec.json.decode(KEPT.read_bytes(), type=list[Run]) if KEPT.exists() else []


def section(runs: list[Run]) -> Section:
    faulty = [each for each in runs if each.really_ms is not None]
    healthy = [each for each in runs if each.really_ms is None]
    figures = [
        Figure("late rank, its node, its cause and its lateness told right", _right(faulty)),
        Figure("healthy jobs of which nothing wrong is said", _right(healthy)),
        Figure("... of them told that others take their cores, which the kernel says, too", _taken(healthy)),
    ]
    off = [abs(run.told_ms - run.really_ms) for run in faulty if run.told_ms and run.really_ms]
    if off:
        really = [each.really_ms or 0.0 for each in faulty]
        of = f"of {min(really):.0f} to {max(really):.0f} ms"
        apart = max(each.clocks_ms for each in runs)
        figures += [
            Figure("lateness told, off by at most", f"{max(off):.1f} ms, {of}"),
            Figure("clocks apart from the first node's by up to", f"{apart:.0f} ms"),
        ]
    wrong = tuple(f"Wrong: {each.text}: {_in_short(each.wrong)}." for each in runs if each.wrong)
    loads = [each.load1 for each in runs]
    first, last = min(each.at for each in runs), max(each.at for each in runs)
    load = f"load average before a run {min(loads):.1f} to {max(loads):.1f}"
    when = f"Measured {first} to {last} on {os.cpu_count()} cores, {load}."
    return Section(TITLE, tuple(figures), METHOD, RESOLVES, (when, *wrong))


def _taken(runs: list[Run]) -> str:
    told = [each for each in runs if each.titles and not each.wrong]
    if not told:
        return "0"
    least = min(each.waited_share for each in told)
    return f"{len(told)}, where a rank waited {least:.0%} of its time or more for a core"


def _in_short(wrong: list[str]) -> str:
    return wrong[0] if len(wrong) == 1 else f"{wrong[0]}, and {len(wrong) - 1} more"


def _right(runs: list[Run]) -> str:
    return f"{sum(not each.wrong for each in runs)} of {len(runs)}" if runs else "none played"
