"""Every record, to whoever wants to read them all. What a reader is too slow for is counted; nobody waits."""

from __future__ import annotations

from ingero.model.live import UNREAD, Surface
from ingero.model.window import Window
from ingero.serve.answers.records import RecordStream


class Telling:
    """The stream of records."""

    def __init__(self, surface: Surface, stream: RecordStream) -> None:
        self._surface, self._stream = surface, stream
        self._untold = 0

    def tell(self, window: Window) -> None:
        if not self._surface.wants_records:
            return
        if self._surface.behind():
            self._untold += self._stream.skip(window)
        else:
            self._surface.records(self._stream.lines(window))

    def losses(self) -> dict[str, int]:
        return {UNREAD: self._untold} if self._untold else {}
