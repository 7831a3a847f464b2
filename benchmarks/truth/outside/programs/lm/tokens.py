"""Texts to sequences of token numbers."""

from __future__ import annotations

WORDS = [f"word{number}" for number in range(5000)]


class Packer:
    def __init__(self, size: int) -> None:
        self._numbers = {word: number % size for number, word in enumerate(WORDS)}
        self._at = 0

    def pack(self, length: int) -> list[int]:
        packed = [self._numbers[WORDS[(self._at + offset * 7) % len(WORDS)]] for offset in range(length)]
        self._at += length
        return packed
