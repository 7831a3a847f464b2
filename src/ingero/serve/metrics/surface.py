"""A surface that is also read and sent: another one, with metrics beside it.

What the other shows is not touched. Exporters are started before the trace and stopped
after it; none of their calls waits for a network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ingero.model.gpus import Prices
from ingero.model.live import LiveView, Surface
from ingero.model.metrics import SeriesLimits, SeriesPoint, Snapshot


class Exporter(Protocol):
    """One way out for metrics and findings."""

    def start(self, read: Callable[[], Snapshot]) -> None: ...

    def look(self, view: LiveView) -> None:
        """A second has passed."""
        ...

    def own(self) -> dict[str, list[SeriesPoint]]:
        """Series about the exporter itself."""
        ...

    def warnings(self) -> tuple[str, ...]:
        """What people at the live view should know."""
        ...

    def stop(self, view: LiveView | None) -> None:
        """The trace has ended; None: it never began."""
        ...


class Exported:
    """Passes everything on, and tells the exporters."""

    def __init__(
        self, surface: Surface, exporters: Sequence[Exporter], limits: SeriesLimits, prices: Prices
    ) -> None:
        self.stop_requested = surface.stop_requested
        self.wants_records = surface.wants_records
        self.takes_the_screen = surface.takes_the_screen
        self.metric_limits: SeriesLimits | None = limits
        self.metric_prices = prices
        self.records, self.behind, self.starting = surface.records, surface.behind, surface.starting
        self._surface, self._exporters = surface, exporters
        self._read: Callable[[], Snapshot] | None = None
        self._last: LiveView | None = None
        self._made: tuple[Snapshot, Snapshot] | None = None

    def run(self, work: Callable[[], int]) -> int:
        try:
            return self._surface.run(work)
        finally:
            for exporter in self._exporters:
                exporter.stop(self._last)

    def metrics(self, read: Callable[[], Snapshot]) -> None:
        self._read = read
        for exporter in self._exporters:
            exporter.start(self.read)

    def read(self) -> Snapshot:
        """The trace's series and the exporters' own; the same object while nothing changed."""
        assert self._read is not None
        plain = self._read()
        if self._made is None or self._made[0] is not plain:
            more: dict[str, list[SeriesPoint]] = {}
            for exporter in self._exporters:
                more |= exporter.own()
            self._made = plain, plain.also(more)
        return self._made[1]

    def begin(self, view: LiveView) -> None:
        self._tell(view)
        self._surface.begin(view)

    def update(self, view: LiveView) -> None:
        self._tell(view)
        more = tuple(warning for exporter in self._exporters for warning in exporter.warnings())
        self._surface.update(replace(view, warnings=(*view.warnings, *more)) if more else view)

    def end(self, view: LiveView, exit_code: int) -> None:
        self._last = view  # looked at when the exporters stop: it is over everything, and tells again
        self._surface.end(view, exit_code)

    def _tell(self, view: LiveView) -> None:
        self._last = view
        for exporter in self._exporters:
            exporter.look(view)
