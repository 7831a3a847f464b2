"""The live view as a surface: the screen in the main thread, the trace in another.

Textual wants the main thread for the terminal's signals, so the trace runs beside
it. Quitting sets `stop_requested` and waits for the trace to close its database;
a trace that ends by itself closes the screen. The screen opens only once the
trace has begun: a refused trace prints its error on a terminal left alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ingero.model.gpus import UNPRICED
from ingero.model.live import LiveView, Surface
from ingero.model.metrics import SeriesLimits, Snapshot
from ingero.serve.tui.app import LiveApp

CLOSING_S = 2.0  # to draw the last picture and restore the terminal


class TuiSurface:
    """Shows the live view; `afterwards` is told the end once the screen is closed."""

    wants_records = False
    takes_the_screen = True
    metric_limits: SeriesLimits | None = None
    metric_prices = UNPRICED

    def __init__(self, afterwards: Surface) -> None:
        self.stop_requested = threading.Event()
        self._afterwards = afterwards
        self._opened = threading.Event()
        self._finished = threading.Event()
        self._screen_closed = threading.Event()
        self._newest: LiveView | None = None
        self._ended: tuple[LiveView, int] | None = None
        self._error: BaseException | None = None
        self._code = 1

    def run(self, work: Callable[[], int]) -> int:
        thread = threading.Thread(target=self._work, args=(work,), name="trace")
        thread.start()
        try:
            self._opened.wait()
            if not self._finished.is_set():
                self.app().run()
        finally:
            self._screen_closed.set()
            self.stop_requested.set()
            thread.join()
        if self._error is not None:
            raise self._error
        if self._ended is not None:
            self._afterwards.end(*self._ended)
        return self._code

    def starting(self, doing: str) -> None:
        self._afterwards.starting(doing)

    def metrics(self, read: Callable[[], Snapshot]) -> None: ...

    def behind(self) -> bool:
        return False

    def app(self) -> LiveApp:
        return LiveApp(self.next_view, self._finished.is_set)

    def next_view(self) -> LiveView | None:
        newest, self._newest = self._newest, None
        return newest

    def _work(self, work: Callable[[], int]) -> None:
        try:
            self._code = work()
        except BaseException as error:  # handed to the main thread
            self._error = error
        finally:
            self._finished.set()
            self._opened.set()
            self._leave_anyway()

    def _leave_anyway(self) -> None:
        """Everything is closed by now; a screen whose terminal went away may wait for it for ever."""
        if not self._screen_closed.wait(CLOSING_S):
            os._exit(self._code)

    def begin(self, view: LiveView) -> None:
        self._newest = view
        self._opened.set()

    def update(self, view: LiveView) -> None:
        self._newest = view

    def records(self, lines: Iterable[Mapping[str, Any]]) -> None: ...

    def end(self, view: LiveView, exit_code: int) -> None:
        self._ended = (view, exit_code)
