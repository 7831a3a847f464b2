"""What walking a stack costs the traced thread, by depth and Python version.

The kernel side times its own walks (the same figure is in the agent's overhead), so this
is the walk and nothing else: what it adds to a call that gets a record.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.figures import Figure, Section
from ingero.scenarios import cuda
from tests.ebpf.tracing import WORKLOADS, tracing, workload

TITLE = "Cost of a walk"
DEPTHS, QUICK_DEPTHS = (4, 16, 64, 128, 512), (4, 64)
CALLS, QUICK_CALLS = 3000, 500


def pythons() -> list[str]:
    """The one that runs this, and one of each other version that is here."""
    others = sorted(Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3"))
    named = {path.resolve().name: str(path) for path in others}
    named[Path(sys.executable).resolve().name] = sys.executable
    wanted = [f"python3.{minor}" for minor in range(9, 15)]
    return [named[name] for name in wanted if name in named]


def walk_ns(python: str, depth: int, calls: int) -> tuple[float, int]:
    """What the walks of one call took on average, and how many walks there were."""
    with (
        tracing(record_all=True) as tracer,
        workload(python, str(WORKLOADS / "deep.py"), str(cuda.stub_dir()), str(depth), str(calls)) as job,
    ):
        tracer.until_target(job.pid)
        tracer.until(lambda: tracer.agent._interpreters.version_of(job.pid) is not None)
        tracer.tick()
        first = len(tracer.windows)
        job.go()
        tracer.tick()
        walks = sum(window.walks for window in tracer.windows[first:])
        spent = sum(window.walk_ns for window in tracer.windows[first:])
    return spent / calls, walks


def measure(quick: bool) -> Section:
    depths, calls = (QUICK_DEPTHS, QUICK_CALLS) if quick else (DEPTHS, CALLS)
    figures = []
    for python in pythons()[-1:] if quick else pythons():
        name = Path(python).resolve().name
        for depth in depths:
            ns, walks = walk_ns(python, depth, calls)
            figures.append(Figure(f"{name}, {depth} frames", f"{ns / 1e3:,.2f} µs ({walks:,} walks)"))
    return Section(TITLE, tuple(figures), METHOD.format(calls=calls), RESOLVES)


METHOD = """\
A Python program allocates {calls:,} times from a given depth, every call recorded and walked; the mean per
allocation of what the kernel side measured for its own walks, native frames and the look for news
included. An allocation has two records, the runtime's and the driver's within it: the Python frames are
walked once for both."""

RESOLVES = """\
The mean holds what interrupts took. Only calls with a record are walked (at default settings at most some
thousand a second), so the cost of tracing follows from the number of records, not of calls."""
