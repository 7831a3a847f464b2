"""More of what a training loop does beside training: notes, records kept, text made, naps."""

from __future__ import annotations

import gc
import json
import logging
import logging.handlers
import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

from book import Book
from chores import Chores
from settings import Plan, Settings

NOTE_BYTES = 300


class Errands(Chores):
    def __init__(self, plan: Plan, book: Book, folder: Path) -> None:
        super().__init__(plan, book)
        self._records: list[Any] = []
        self._kept: list[bytes] = []
        self._began = time.monotonic()
        self._evaluated = False
        if plan.usual.log_lines:
            self._log = logger(folder / "train.log")
        for _ in range(max(plan.usual.encoders, plan.later.encoders)):
            threading.Thread(target=self._encode, daemon=True).start()

    def after_step(self, settings: Settings) -> None:
        super().after_step(settings)
        if settings.second_server:
            self._call_server(settings.second_server, settings.send_bytes)
        if settings.turnover:
            self._replace_records(settings)
        if settings.notes_every and self._steps % settings.notes_every == 0:
            self._note(settings)
        if settings.keeps_bytes:
            self._kept.append(os.urandom(4096) * (settings.keeps_bytes // 4096))
        for line in range(settings.log_lines):
            self._log.info("step %d: loss %.4f, rate %.2e, part %d", self._steps, 0.3, 1e-4, line)
        self._every(settings.nap_every_s, "nap", lambda: time.sleep(settings.nap_ms / 1e3))
        if settings.burst_steps and self._steps % settings.burst_steps == 0:
            time.sleep(settings.rest_ms / 1e3)

    def evaluation_is_due(self, settings: Settings) -> bool:
        if settings.evaluate_at_s and not self._evaluated:
            self._evaluated = time.monotonic() - self._began > settings.evaluate_at_s
            return self._evaluated
        return super().evaluation_is_due(settings)

    def _replace_records(self, settings: Settings) -> None:
        """New ones come in each step, a third goes when there are too many; nobody asks for a collection."""
        if gc.isenabled() != settings.collects:
            (gc.enable if settings.collects else gc.disable)()
        self._records += [[index, {"path": [index]}] for index in range(settings.turnover)]
        if len(self._records) > settings.records:
            del self._records[: len(self._records) // 3]

    def _note(self, settings: Settings) -> None:
        file = self._file(settings.notes)
        os.lseek(file, 0, os.SEEK_END)
        os.write(file, b"n" * NOTE_BYTES)
        os.fsync(file)

    def _encode(self) -> None:
        """Text of many records at once: one call in C that keeps the interpreter to itself."""
        records = [{"step": index, "values": [index, index / 7, str(index)]} for index in range(50_000)]
        while True:
            settings = self._plan.at(self._book.phase)
            if settings.encoded_items:
                json.dumps(records[: settings.encoded_items])
            time.sleep(settings.encoder_rest_ms / 1e3)


def logger(path: Path) -> logging.Logger:
    """Lines are formatted and written by a thread of their own."""
    lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
    file = logging.FileHandler(path)
    file.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.handlers.QueueListener(lines, file).start()
    log = logging.getLogger("train")
    log.setLevel(logging.INFO)
    log.addHandler(logging.handlers.QueueHandler(lines))
    return log
