"""Statistics as tables, by operation and by kernel: what `ingero query` prints without SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from ingero import units
from ingero.model.live import LAYERS
from ingero.model.report import Loss
from ingero.serve import terminal
from ingero.serve.answers.kernels import KernelsAnswer, KernelStats
from ingero.serve.answers.label_operations import LabelValue
from ingero.serve.answers.operations import OperationStats
from ingero.serve.answers.query import LabelledAnswer, StatisticsAnswer
from ingero.serve.cli import tables
from ingero.serve.cli.fitting import Fitting

# Per-operation statistics as tables: what `ingero query` prints without SQL.

COLUMNS = ("Operation", "Calls", "p50", "p95", "p99", "max", "Total", "Wall", "Bytes", "Errors")
NOT_BY_LABEL = ("Bytes", "Errors")
COUNTED_FROM = {
    "now": "counted back from now",
    "last-record": "counted back from the last record",
    "recording": "the whole last recording",
    "given": "as given",
    "label": "while the label held, in whole seconds",
}


def parts(answer: StatisticsAnswer) -> list[Any]:
    """What to print, top down."""
    window = answer.window
    between = f"{terminal.local_time(window.from_ns)} to {terminal.local_time(window.to_ns)}"
    about = f"{between}, {COUNTED_FROM[answer.counted_from]}"
    found: list[Any] = [Text(f"{about}; {units.format_ns(answer.recorded_ns)} recorded"), Text()]
    nodes = sorted({row.node for row in answer.operations})
    places = [(node, layer) for node in nodes for layer in _layers(answer, node)]
    for node, layer in places:
        rows = [row for row in answer.operations if (row.node, row.layer) == (node, layer)]
        if len(nodes) > 1 and layer == _layers(answer, node)[0]:
            found += [Text(terminal.clean(node), "bold"), Text()]
        found.append(_title(layer, rows))
        found += [Fitting(COLUMNS, map(_cells, rows)), Text()]
    if any(terminal.ROUGH in _count(row) for row in answer.operations):
        found += [Text(terminal.ROUGH_WORDS, "bright_black"), Text()]
    if not answer.operations:
        found.append(Text("No call was recorded in that time."))
    found += _dropped(answer.losses)
    return [tables.indented(part) for part in found]


def _dropped(losses: Sequence[Loss]) -> list[Text]:
    return [terminal.dropped_reasons((each.reason, each.count) for each in losses)] if losses else []


def _title(layer: str, rows: Sequence[OperationStats]) -> Text:
    exact = all(row.exact for row in rows)
    return tables.title(layer, sum(row.count for row in rows), exact, sum(row.count_error for row in rows))


def _layers(answer: StatisticsAnswer, node: str) -> list[str]:
    return sorted({row.layer for row in answer.operations if row.node == node}, key=_layer_order)


def parts_by_label(answer: LabelledAnswer) -> list[Any]:
    """For each value of a label its operations."""
    window = answer.window
    between = f"{terminal.local_time(window.from_ns)} to {terminal.local_time(window.to_ns)}"
    key = terminal.clean(answer.key)
    about = f"{between}, {COUNTED_FROM[answer.counted_from]}; by {key}, longest first"
    several = len({row.node for each in answer.values for row in each.operations}) > 1
    rows = [_cells_of(each, row, several) for each in answer.values for row in each.operations]
    columns = (key, "held", *["Node"] * several, *(name for name in COLUMNS if name not in NOT_BY_LABEL))
    found: list[Any] = [Text(about), Text(), Fitting(columns, rows, left=(2, 3) if several else (2,))]
    if any(not row.exact for each in answer.values for row in each.operations):
        found.append(
            Text("~: calls not stored one by one; of those next to its begin or end some may lie outside.")
        )
    if any(terminal.ROUGH in _count(row) for each in answer.values for row in each.operations):
        found.append(Text(terminal.ROUGH_WORDS, "bright_black"))
    found += _dropped(answer.losses)
    return [tables.indented(part) for part in found]


def _cells_of(each: LabelValue, row: OperationStats, several: bool) -> list[Text]:
    held = [Text(terminal.clean(each.value)), Text(units.format_ns(each.held_ns))]
    return [*held, *[Text(terminal.clean(row.node))] * several, *_cells(row)[: -len(NOT_BY_LABEL)]]


def _layer_order(layer: str) -> tuple[int, str]:
    return (LAYERS.index(layer) if layer in LAYERS else len(LAYERS), layer)


def _cells(row: OperationStats) -> list[Text]:
    times = map(units.format_ns, (row.p50_ns, row.p95_ns, row.p99_ns, row.max_ns, row.sum_ns))
    cells = (_count(row), *times, units.format_share(row.wall_share), units.format_bytes(row.bytes))
    errors = units.format_count(row.errors) if row.errors else ""
    return [Text(terminal.clean(row.op)), *map(Text, cells), Text(errors, "red")]


def _count(row: OperationStats) -> str:
    return terminal.count_words(row.count, row.exact, row.count_error)


# Kernels as a table: what `ingero query --kernels` prints.


KERNEL_COLUMNS = ("PID", "Process", "Kernel", "Launches", "Share", "p50", "max")


def kernel_parts(answer: KernelsAnswer) -> list[Any]:
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
    found += _dropped(answer.losses)
    return [tables.indented(part) for part in found]


def _table(kernels: list[KernelStats]) -> Any:
    if len({row.node for row in kernels}) < 2:
        return Fitting(KERNEL_COLUMNS, map(_kernel_cells, kernels), left=(1, 2))
    rows = [[Text(terminal.clean(row.node)), *_kernel_cells(row)] for row in kernels]
    return Fitting(("Node", *KERNEL_COLUMNS), rows, left=(0, 2, 3))


def _kernel_cells(row: KernelStats) -> list[Text]:
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
