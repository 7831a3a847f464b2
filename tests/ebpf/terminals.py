"""`ingero` on a terminal of its own: what appears there, and keys that are pressed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator

from tests.ebpf.real_runs import INGERO, Place


@contextlib.contextmanager
def on_terminal(
    place: Place, *words: str, columns: int, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A run that owns a terminal of so many columns, and the other end of it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        ["setsid", "--ctty", *INGERO, *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env=place.environment(TERM="xterm-256color", **environment),
    )  # fmt: skip
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        with contextlib.suppress(OSError):
            os.close(ours)


def shown(ours: int, enough: Callable[[str], bool] = lambda text: False) -> str:
    """What appears until it is enough or the other side is closed."""
    text, deadline = "", time.monotonic() + 40
    while time.monotonic() < deadline and not enough(text):
        if select.select([ours], [], [], 0.1)[0]:
            try:
                text += os.read(ours, 65536).decode(errors="replace")
            except OSError:
                break
    return text


def after_s(seconds: float) -> Callable[[str], bool]:
    until_s = time.monotonic() + seconds
    return lambda text: time.monotonic() >= until_s
