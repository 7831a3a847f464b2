"""The start of a trace takes seconds: each step is told, and whoever asks for the end meanwhile gets it.

A command that waits behind its gate then never runs: being asked to stop before it began is
no reason to begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ingero.model.live import Surface

INTERRUPTED = 130  # as a shell says it; nothing ran that could say anything else


class StoppedError(Exception):
    """Told to stop before it began."""


class Starting:
    """Says what is being done, and notices that it is not wanted any more."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    def step(self, doing: str) -> None:
        if self._surface.stop_requested.is_set():
            raise StoppedError
        self._surface.starting(doing)

    def attaching(self, processes: int) -> None:
        self.step(f"attaching to {processes} process{'es' if processes != 1 else ''}")

    @contextmanager
    def told(self) -> Iterator[None]:
        """Whatever becomes of it: nothing of it stays on the screen."""
        try:
            yield
            self.step("")
        except BaseException:
            self._surface.starting("")
            raise
