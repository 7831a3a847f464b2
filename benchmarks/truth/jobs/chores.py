"""What a training loop does beside training: checkpoints, requests, collecting garbage, helpers."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from book import Book
from settings import Plan, Settings
from work import compute

SCRATCH_ROOM = 1 << 26


class Chores:
    def __init__(self, plan: Plan, book: Book) -> None:
        self._plan, self._book = plan, book
        self._heap = [[index, {"name": index}] for index in range(plan.usual.objects // 3)]
        self._servers: dict[str, socket.socket] = {}
        self._steps = 0
        self._due: dict[str, float] = {}
        self._scratch_at = 0
        self._files: dict[str, int] = {}
        self._random_bytes = os.urandom(1 << 20)
        if max(plan.usual.helper_ms, plan.later.helper_ms) > 0:
            threading.Thread(target=self._help, daemon=True).start()
        for number in range(plan.usual.threads):
            threading.Thread(target=self._look_now_and_then, args=(number,), daemon=True).start()

    def after_step(self, settings: Settings) -> None:
        self._steps += 1
        compute(settings.host_ms)
        if settings.server and self._steps % settings.calls_every == 0:
            self._call_server(settings.server, settings.send_bytes)
        if settings.scratch_bytes:
            self._write_scratch(settings)
        if settings.collect_every and self._steps % settings.collect_every == 0:
            gc.collect()
        self._every(settings.checkpoint_every_s, "checkpoint", lambda: self._save(settings))
        self._every(settings.chore_every_s, "chore", lambda: compute(settings.chore_ms))
        self._every(settings.program_every_s, "program", lambda: self._run_program(settings))
        if settings.pause_ms:
            time.sleep(settings.pause_ms / 1e3)

    def evaluation_is_due(self, settings: Settings) -> bool:
        due: list[bool] = []
        self._every(settings.evaluate_every_s, "evaluation", lambda: due.append(True))
        return bool(due)

    def _every(self, seconds: float, name: str, do: Callable[[], Any]) -> None:
        if not seconds:
            return
        now = time.monotonic()
        if now >= self._due.setdefault(name, now + seconds):
            do()
            self._due[name] = time.monotonic() + seconds

    def _file(self, path: str) -> int:
        if path not in self._files:
            self._files[path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        return self._files[path]

    def _save(self, settings: Settings) -> None:
        file = self._file(settings.checkpoint)
        for at in range(0, settings.checkpoint_bytes, len(self._random_bytes)):
            os.pwrite(file, self._random_bytes[: settings.checkpoint_bytes - at], at)
        os.fsync(file)

    def _run_program(self, settings: Settings) -> None:
        subprocess.run(["/bin/sleep", str(settings.program_s)], check=True)

    def _write_scratch(self, settings: Settings) -> None:
        file = self._file(settings.scratch)
        for _ in range(max(settings.scratch_bytes >> 20, 1)):
            os.pwrite(file, self._random_bytes, self._scratch_at)
            self._scratch_at = (self._scratch_at + len(self._random_bytes)) % SCRATCH_ROOM

    def _call_server(self, address: str, send_bytes: int) -> None:
        if address not in self._servers:
            self._servers[address] = connected(address)
        server = self._servers[address]
        server.sendall(send_bytes.to_bytes(8, "big") + b"q" * send_bytes)
        answer = b""
        while len(answer) < 64:
            answer += server.recv(64 - len(answer))

    def _help(self) -> None:
        while True:
            settings = self._plan.at(self._book.phase)
            compute(settings.helper_ms)
            time.sleep(settings.helper_rest_ms / 1e3)

    def _look_now_and_then(self, number: int) -> None:
        while True:
            time.sleep(0.05 + 0.01 * (number % 7))


def connected(address: str) -> socket.socket:
    """A path, or HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if colon:
        server = socket.create_connection((host, int(port)))
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    else:
        server = socket.socket(socket.AF_UNIX)
        server.connect(address)
    return server
