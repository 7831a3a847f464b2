"""Waiting for what happens elsewhere, with a limit that is no measurement."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT_S = 60.0


def until(ask: Callable[[], T], what: str, limit_s: float = LIMIT_S) -> T:
    """What `ask` answers once that is true."""
    end = time.monotonic() + limit_s
    while not (found := ask()):
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.05)
    return found
