"""A language model behind asyncio: sessions wait for tokens, one loop feeds the device."""

from __future__ import annotations

import asyncio
import threading
import time

from runbook import Run
from torchlet import Device

from chat.sessions import Session, audit, trim_history


class Engine:
    def __init__(self, run: Run) -> None:
        self._run, self._device = run, Device()
        self._stream = self._device.stream()
        self._event = self._device.event()
        self._wanted: asyncio.Queue[tuple[Session, asyncio.Future[int]]] = asyncio.Queue()
        threading.Thread(target=self._watch_progress, daemon=True).start()

    def _watch_progress(self) -> None:
        """For the bar in the terminal: is the device through?"""
        event = self._device.event()
        while True:
            if self._run.get("watch"):
                self._device.record(event, self._stream)
                while not self._device.done(event):
                    pass
            else:
                time.sleep(0.1)

    async def token(self, session: Session) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await self._wanted.put((session, future))
        return await future

    async def decode_for_ever(self) -> None:
        while True:
            batch = [await self._wanted.get()]
            while len(batch) < self._run["max_batch"] and not self._wanted.empty():
                batch.append(self._wanted.get_nowait())
            self._launch(len(batch))
            while not self._device.done(self._event):
                await asyncio.sleep(self._run["poll_s"])
            for session, future in batch:
                future.set_result(session.length)
            self._run.step()

    def _launch(self, sequences: int) -> None:
        for layer in range(self._run["layers"]):
            self._device.launch(self._run["layer_us"] + 5 * sequences, self._stream, layer)
        self._device.record(self._event, self._stream)


async def converse(engine: Engine, session: Session, run: Run) -> None:
    while True:
        await engine.token(session)
        session.length += 1
        if session.length % run["answer_tokens"] == 0:
            if run.get("audit_s"):
                audit(session, run["audit_s"])
            trim_history(session)
            await asyncio.sleep(run["think_s"])


async def main() -> None:
    run = Run()
    engine = Engine(run)
    sessions = [
        asyncio.create_task(converse(engine, Session(number), run)) for number in range(run["sessions"])
    ]
    await asyncio.gather(engine.decode_for_ever(), *sessions)


if __name__ == "__main__":
    asyncio.run(main())
