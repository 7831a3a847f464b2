"""The end of a trace as it was in memory, for the report that closes it.

A full disk takes the recording's word for what is missing from it; the trace itself knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ingero import units
from ingero.model.report import Loss, NotWatched, Report

if TYPE_CHECKING:
    from ingero.model.live import LiveView, Surface


class Remembered:
    """Another surface, whose last view is kept."""

    def __init__(self, surface: Surface) -> None:
        self.stop_requested = surface.stop_requested
        self.wants_records = surface.wants_records
        self.takes_the_screen = surface.takes_the_screen
        self.metric_limits = surface.metric_limits
        self.metric_prices = surface.metric_prices
        self.run, self.records, self.metrics = surface.run, surface.records, surface.metrics
        self.begin, self.update, self.behind = surface.begin, surface.update, surface.behind
        self.starting = surface.starting
        self.surface = surface
        self.last: LiveView | None = None

    def end(self, view: LiveView, exit_code: int) -> None:
        self.last = view
        self.surface.end(view, exit_code)


def with_memory(report: Report, view: LiveView | None) -> Report:
    """The report of a recording that has just ended, with what its file does not know of."""
    if view is None:
        return report
    stored = {loss.reason: loss.count for loss in report.losses}
    from_ns, to_ns = view.now_ns - view.elapsed_ns, view.now_ns
    unknown = [
        Loss(reason, count, from_ns, to_ns)
        for reason, count in view.losses.items()
        if count > stored.get(reason, 0)
    ]
    named = {loss.reason for loss in unknown}
    losses = [*unknown, *(loss for loss in report.losses if loss.reason not in named)]
    return replace(
        report,
        losses=sorted(losses, key=lambda loss: -loss.count),
        not_watched=[*_not_stored(report, view), *report.not_watched],
    )


def _not_stored(report: Report, view: LiveView) -> list[NotWatched]:
    missing_ns = view.elapsed_ns - (report.recorded_ns or 0)
    if not view.database.problem or missing_ns < units.SECOND:
        return []
    length = f"{units.format_ns(missing_ns)} of {units.format_ns(view.elapsed_ns)}"
    return [NotWatched(length, f"not stored: {view.database.problem}")]
