"""Kernels as a table: what `ingero query --kernels` prints."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ingero import units
from ingero.serve import terminal
from ingero.serve.answers.kernels import KernelsAnswer, KernelStats
from ingero.serve.cli import tables
from ingero.serve.cli.fitting import Fitting
from ingero.serve.cli.statistics import COUNTED_FROM

COLUMNS = ("PID", "Process", "Kernel", "Launches", "Share", "p50", "max")


def parts(answer: KernelsAnswer) -> list[Any]:
    """What to print, top down."""
    between = f"{terminal.local_time(answer.from_ns)} to {terminal.local_time(answer.to_ns)}"
    about = f"{between}, {COUNTED_FROM[answer.counted_from]}"
    found: list[Any] = [Text(f"{about}; {units.format_ns(answer.recorded_ns)} recorded"), Text()]
    if answer.kernels:
        found.append(tables.title("kernels launched", answer.launches))
        found.append(_table(answer.kernels))
        found.append(
            Text(
                f"{units.format_share(answer.named_share)} of the launches have a name. p50 and max are of"
                " the launch call on the host. --json has the names in full."
            )
        )
    else:
        found.append(Text("No launch was recorded in that time."))
    for loss in answer.losses:
        found.append(Text(f"Lost: {terminal.clean(loss.reason)} {loss.count:,}", "red"))
    return [tables.indented(part) for part in found]


def _table(kernels: list[KernelStats]) -> Any:
    if len({row.node for row in kernels}) < 2:
        return Fitting(COLUMNS, map(_cells, kernels), left=(1, 2))
    rows = [[Text(terminal.clean(row.node)), *_cells(row)] for row in kernels]
    return Fitting(("Node", *COLUMNS), rows, left=(0, 2, 3))


def _cells(row: KernelStats) -> list[Text]:
    name = terminal.clean(row.short or "not known")
    return [
        Text(str(row.pid or "-")),
        Text(terminal.clean(row.comm or "-")),
        Text(name, "" if row.named else "dim"),
        Text(units.format_count(row.launches)),
        Text(units.format_share(row.share)),
        Text(units.format_ns(row.p50_ns)),
        Text(units.format_ns(row.max_ns)),
    ]
