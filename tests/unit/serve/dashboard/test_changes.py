"""Who listens is told of every change, once, and let go when the server stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ingero.serve.dashboard.app import Changes
from ingero.serve.dashboard.source import DashboardSource


def test_listeners_hear_of_a_change_and_of_the_end(tmp_path: Path) -> None:
    db = tmp_path / "x.db"

    async def listen(changes: Changes, heard: list[str]) -> None:
        async for event in changes.events():
            heard.append(str(event.get("event", "comment")))

    async def play() -> list[list[str]]:
        changes = Changes(DashboardSource(db), look_s=0.01)
        heard: list[list[str]] = [[], []]
        watching = asyncio.create_task(changes.watch())
        listening = [asyncio.create_task(listen(changes, each)) for each in heard]
        while not all(heard):
            await asyncio.sleep(0.01)
        db.write_bytes(b"something")
        while min(map(len, heard)) < 2:
            await asyncio.sleep(0.01)
        changes.stop()
        await asyncio.wait_for(asyncio.gather(watching, *listening), 10)
        return heard

    assert asyncio.run(play()) == [["changed", "changed"], ["changed", "changed"]]
