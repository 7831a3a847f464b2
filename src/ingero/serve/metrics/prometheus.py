"""Metrics for Prometheus to fetch: the server, while a trace runs."""

from __future__ import annotations

from collections.abc import Callable

from ingero.model.live import LiveView
from ingero.model.metrics import Point, Snapshot
from ingero.serve.metrics.scraping import scraped_app
from ingero.serve.web.guard import Guard
from ingero.serve.web.opening import Opened
from ingero.serve.web.server import ServerThread


class PrometheusExporter:
    """Serves until the trace ends."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._server: ServerThread | None = None

    def start(self, read: Callable[[], Snapshot]) -> None:
        app = Guard(scraped_app(read), self._opened.rules)
        self._server = ServerThread(app, self._opened.sockets, self._opened.tls)
        self._server.start()

    def look(self, view: LiveView) -> None: ...

    def own(self) -> dict[str, list[Point]]:
        return {}

    def warnings(self) -> tuple[str, ...]:
        return ()

    def stop(self, view: LiveView | None) -> None:  # noqa: ARG002
        if self._server is not None:
            self._server.stop()
        else:
            for each in self._opened.sockets:
                each.close()
