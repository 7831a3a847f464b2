"""Valid inputs made hostile, the same way for the same seed and number.

Bytes are changed in place more often than moved, numbers are set to what breaks sizes
and offsets, and words of the format are put where they do not belong, so that most
inputs get past the first check.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

INTERESTING = (
    0, 1, 2, 7, 8, 16, 63, 64, 100, 127, 128, 255, 256, 1000, 4095, 4096, 65535, 65536,
    (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 47) - 8, 1 << 62, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 1,
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "\n", "\r\n", "\x1b[2J", "\u202e", "\ud800", "é" * 40, "=1+1", "%s%n",
    "../../etc/passwd", "'\"--", "-1", "0", "9" * 30, "1e400", "NaN", "null", "{}", "[]", "x" * 5000,
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**63 - 1, -(2**63), 2**64, 1e308, -1e308, float("nan"), float("inf"), 0.5,
    b"", b"\xff\xfe", [], {}, *TEXTS,
)  # fmt: skip
MOST_CHANGES = 6
MOST_BYTES = 1 << 20

Chance = random.Random


def chance_of(name: str, seed: int, number: int) -> Chance:
    """The same input again, whatever ran before it."""
    return random.Random(f"{name}/{seed}/{number}")


def mutated(corpus: Sequence[bytes], chance: Chance, words: Sequence[bytes] = ()) -> bytes:
    """One of the corpus, changed a few times; now and then not at all."""
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.randrange(MOST_CHANGES + 1)):
        chance.choice(_CHANGES)(data, chance, corpus, words)
    return bytes(data[:MOST_BYTES])


Change = Callable[[bytearray, Chance, Sequence[bytes], Sequence[bytes]], None]


def _place(data: bytearray, chance: Chance) -> int:
    """Heads of files and records decide more than the rest of them."""
    reach = len(data) if chance.random() < 0.5 else min(len(data), 512)
    return chance.randrange(reach + 1)


def _flip(data: bytearray, chance: Chance, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    if data:
        data[min(_place(data, chance), len(data) - 1)] ^= 1 << chance.randrange(8)


def _byte(data: bytearray, chance: Chance, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    if data:
        data[min(_place(data, chance), len(data) - 1)] = chance.randrange(256)


def _number(data: bytearray, chance: Chance, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    width = chance.choice((1, 2, 4, 8))
    at = _place(data, chance) // width * width
    value = chance.choice((*INTERESTING, len(data), len(data) - at))
    if chance.random() < 0.3:
        value = int.from_bytes(data[at : at + width], "little") + chance.choice((-8, -1, 1, 8, 4096))
    data[at : at + width] = (value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")


def _cut(data: bytearray, chance: Chance, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    at = _place(data, chance)
    del data[at : at + chance.choice((1, 2, 8, 64, len(data)))]


def _repeat(data: bytearray, chance: Chance, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    at, size = _place(data, chance), chance.choice((1, 8, 40, 200))
    data[at:at] = data[at : at + size] * chance.choice((1, 2, 50))


def _word(data: bytearray, chance: Chance, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    word = chance.choice(words) if words else chance.choice(TEXTS).encode("utf-8", "surrogatepass")
    at = _place(data, chance)
    data[at : at + chance.choice((0, len(word)))] = word


def _splice(data: bytearray, chance: Chance, corpus: Sequence[bytes], words: Sequence[bytes]) -> None:
    other = chance.choice(corpus)
    start, size = chance.randrange(len(other) + 1), chance.choice((8, 64, 1000))
    at = _place(data, chance)
    data[at : at + chance.choice((0, size))] = other[start : start + size]


_CHANGES: tuple[Change, ...] = (
    _flip, _flip, _byte, _byte, _number, _number, _number, _number, _cut, _repeat, _word, _word, _splice,
)  # fmt: skip


def mutated_value(value: Any, chance: Chance, share: float = 0.15) -> Any:
    """A tree of lists, dicts and plain values with some of them exchanged for what does not belong there."""
    if chance.random() < share:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        return {key: mutated_value(each, chance, share) for key, each in value.items()}
    if isinstance(value, list):
        return [mutated_value(each, chance, share) for each in value] * chance.choice((1, 1, 1, 1, 3))
    if isinstance(value, int) and chance.random() < share:
        return value + chance.choice(INTERESTING) * chance.choice((-1, 1))
    return value
