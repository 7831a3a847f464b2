"""The agent's own messages: to standard error, or appended to a file.

Text from traced processes can be part of a message, so control characters are
replaced before anything is written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ingero import units
from ingero.errors import UsageError

HELD = 1000  # the latest that wait while the live view is up
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class CleanFormatter(logging.Formatter):
    """One line per message, harmless to a terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return units.clean(super().formatMessage(record), limit=4000)


def start(level: str, file: Path | None) -> logging.Handler:
    """Send the messages of every ingero module to `file` or standard error."""
    logger = logging.getLogger("ingero")
    stop()
    handler = logging.StreamHandler(sys.stderr) if file is None else _file_handler(file)
    handler.setFormatter(CleanFormatter(FORMAT))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler


class Holding(logging.Handler):
    """Keeps the last messages for another handler."""

    def __init__(self, target: logging.Handler) -> None:
        super().__init__()
        self.target = target
        self.kept: deque[logging.LogRecord] = deque(maxlen=HELD)

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


@contextlib.contextmanager
def held(hold: bool = True) -> Iterator[None]:
    """Keep messages for standard error back while something else owns the terminal."""
    logger = logging.getLogger("ingero")
    swapped = [Holding(h) for h in logger.handlers if hold and not isinstance(h, OwnedStream)]
    for handler in swapped:
        logger.removeHandler(handler.target)
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in swapped:
            logger.removeHandler(handler)
            logger.addHandler(handler.target)
            for record in handler.kept:
                handler.target.handle(record)


def stop() -> None:
    """Close what an earlier start() opened."""
    logger = logging.getLogger("ingero")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
        if isinstance(handler, OwnedStream):
            handler.stream.close()


class OwnedStream(logging.StreamHandler):  # type: ignore[type-arg]
    """A handler on a file we opened."""


def _file_handler(file: Path) -> logging.Handler:
    try:
        # Not through a link: as root that would append to anybody's file.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600)
    except OSError as error:
        hint = "With --log-file, choose a file you can write to."
        raise UsageError(f"cannot open log file {file}: {error.strerror}", hint=hint) from error
    return OwnedStream(os.fdopen(descriptor, "a", encoding="utf-8"))
