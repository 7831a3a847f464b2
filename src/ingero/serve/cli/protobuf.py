"""The few parts of the protobuf encoding that a trace needs, made for speed.

A general library encodes some two hundred thousand packets a second, and a trace has
millions. Field numbers are where they are used; tests read what is written with the
published definitions.
"""

from __future__ import annotations

import struct
from functools import lru_cache

VARINT, FIXED64, BYTES = 0, 1, 2
_ONE = tuple(bytes([n]) for n in range(128))
_PAIR = tuple(bytes([0x80 | n & 0x7F, 0x80 | n >> 7]) for n in range(1 << 14))  # with more to come
_FIXED = struct.Struct("<Q").pack
_DOUBLE = struct.Struct("<d").pack


def varint(value: int) -> bytes:
    """A number of up to 64 bits; negative ones as their 64-bit pattern."""
    if 0 <= value < 128:
        return _ONE[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = []
    while value >= 1 << 14:
        parts.append(_PAIR[value & 0x3FFF])
        value >>= 14
    if value >= 128:
        parts.append(_ONE_MORE[value & 0x7F])
        value >>= 7
    parts.append(_ONE[value])
    return b"".join(parts)


_ONE_MORE = tuple(bytes([0x80 | n]) for n in range(128))


@lru_cache(maxsize=4096)
def _upper(value: int) -> bytes:
    return varint(value)


def instant(ns: int) -> bytes:
    """As varint, for times that lie close together: their upper part is made once."""
    return _PAIR[ns & 0x3FFF] + _PAIR[ns >> 14 & 0x3FFF] + _upper(ns >> 28) if ns >= 1 << 28 else varint(ns)


def tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def number_field(number: int, value: int) -> bytes:
    return tag(number, VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Also of messages and text."""
    return tag(number, BYTES) + varint(len(value)) + value


def text_field(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode("utf-8", "replace"))


def fixed_field(number: int, value: int) -> bytes:
    return tag(number, FIXED64) + _FIXED(value & 0xFFFF_FFFF_FFFF_FFFF)


def double_field(number: int, value: float) -> bytes:
    return tag(number, FIXED64) + _DOUBLE(value)
