"""Metrics for Prometheus to fetch: the server, while a trace runs. It is a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ingero.model.live import LiveView
from ingero.model.metrics import SeriesPoint, Snapshot
from ingero.serve.metrics.scraping import ALIVE, scraped_app
from ingero.serve.metrics.server_process import ServerProcess
from ingero.serve.web.guard import Guard
from ingero.serve.web.opening import Opened
from ingero.serve.web.server import serve

ENDED = "metrics are no longer served: the server's processes were ended"


class PrometheusExporter:
    """Serves until the trace ends."""

    def __init__(self, opened: Opened) -> None:
        def serving(read: Callable[[], Snapshot], ready: Callable[[], None]) -> None:
            app = Guard(scraped_app(read), replace(opened.rules, open_paths=frozenset({ALIVE})))
            serve(app, opened.sockets, opened.tls, ready, lifespan="off")

        self._server = ServerProcess(serving)
        for each in opened.sockets:  # they are the server's now
            each.close()

    def start(self, read: Callable[[], Snapshot]) -> None:
        self._server.start(read)

    def look(self, view: LiveView) -> None: ...

    def own(self) -> dict[str, list[SeriesPoint]]:
        return {}

    def warnings(self) -> tuple[str, ...]:
        return (ENDED,) if self._server.ended() else ()

    def stop(self, view: LiveView | None) -> None:  # noqa: ARG002
        self._server.stop()
