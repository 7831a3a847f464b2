"""Tells browsers when the database has changed: one look at the file serves all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress

from ingero.serve.dashboard.source import Source

LOOK_S = 0.5
RETRY_MS = 1000  # after which a browser that lost us tries again
QUIET_S = 15.0  # after so long a comment is sent, so that nobody takes the connection for dead


class Changes:
    """Looks at the file while anybody listens."""

    def __init__(self, source: Source, look_s: float = LOOK_S) -> None:
        self._source, self._look_s = source, look_s
        self._number = 0
        self._changed = asyncio.Condition()
        self._over = asyncio.Event()

    def stop(self) -> None:
        """Every stream ends, and nobody has to be cut off."""
        self._over.set()

    async def watch(self) -> None:
        """Until cancelled."""
        seen = await asyncio.to_thread(lambda: self._source.stamp)
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), self._look_s)
                async with self._changed:
                    self._changed.notify_all()
                return
            now = await asyncio.to_thread(lambda: self._source.stamp)
            if now != seen:
                seen = now
                async with self._changed:
                    self._number += 1
                    self._changed.notify_all()

    async def events(self) -> AsyncIterator[dict[str, str | int]]:
        """First where we are, then every change; several that come at once are one."""
        seen = -1
        while not self._over.is_set():
            if seen != self._number:
                seen = self._number
                told = json.dumps({"number": seen, "now_ns": time.time_ns()})
                yield {"event": "changed", "data": told, "retry": RETRY_MS}
                continue
            try:
                async with asyncio.timeout(QUIET_S), self._changed:
                    await self._changed.wait()
            except TimeoutError:
                yield {"comment": "still here"}
