"""What a file may have the agent read: no more than is really in it, and no more than any library has.

The files belong to the traced processes. Tables that overlap or lie in holes cost their
writer nothing and us gigabytes, so they are refused before anything is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise

MAX_SYMBOLS = (
    3_000_000  # the largest libraries of torch have some 600,000; each takes up to 150 bytes while read
)
MAX_SYMBOL_BYTES = 256 << 20  # with their names, which are most of it


def refusal(fd: int, file_bytes: int, ranges: Iterable[tuple[int, int]], symbols: int) -> str:
    """Why tables at these (offset, size) are not read; empty when they are."""
    places = sorted(set(ranges))
    total = sum(size for _, size in places)
    if symbols > MAX_SYMBOLS:
        return f"it claims {symbols:,} symbols, more than {MAX_SYMBOLS:,}"
    if total > MAX_SYMBOL_BYTES:
        return f"its symbols take {total >> 20} MiB, more than {MAX_SYMBOL_BYTES >> 20}"
    if any(offset + size > file_bytes for offset, size in places):
        return "a table lies outside the file"
    if any(before[0] + before[1] > after[0] for before, after in pairwise(places)):
        return "its tables overlap"
    if sum(_stored(fd, offset, size) for offset, size in places) * 2 < total:
        return "most of its tables is not in the file but in holes"
    return ""


def _stored(fd: int, offset: int, size: int) -> int:
    """How many bytes of a part of the file are not holes; where that cannot be told, all."""
    found, at, end = 0, offset, offset + size
    for _ in range(64):  # a table in more pieces than that is one somebody made so
        try:
            begin = os.lseek(fd, at, os.SEEK_DATA)
            if begin >= end:
                return found
            at = min(end, os.lseek(fd, begin, os.SEEK_HOLE))
        except OSError:  # no more data, or a file system that knows no holes and says so
            return found if found or _knows_holes(fd) else size
        found += at - begin
        if at >= end:
            return found
    return found


def _knows_holes(fd: int) -> bool:
    try:
        os.lseek(fd, 0, os.SEEK_DATA)
    except OSError:
        return False
    return True
