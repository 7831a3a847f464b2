"""Names of kernels as numbers: each name once, however many handles have it.

Texts come from traced processes: made fit to show, cut, and only so many. Demangling is
done for many at once, because a reader is asked that starts a child (native/demangle.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ingero.model.kernels import KernelName
from ingero.units import clean

MAX_NAMES = 16384  # different ones; each up to 2 KiB
MAX_CHARACTERS = 2048
STUB = b"__device_stub_"  # before the name of a kernel's host function, in some builds

Demangle = Callable[[int, Sequence[bytes]], Sequence[str]]  # of a process: what it costs is that one's fault


class KernelTable:
    """Numbers of names; 0 is no name."""

    def __init__(self, demangle: Demangle) -> None:
        self._demangle = demangle
        self._names: list[KernelName] = [KernelName("", known=False)]
        self._numbers: dict[KernelName, int] = {}
        self._of_text: dict[bytes, int] = {b"": 0}

    def __getitem__(self, number: int) -> KernelName:
        return self._names[number]

    def names(self, numbers: NDArray[np.int64]) -> dict[int, KernelName]:
        return {number: self._names[number] for number in np.unique(numbers).tolist() if number}

    def of_texts(self, pid: int, texts: Sequence[bytes]) -> list[int]:
        """Numbers of names as the process, or the symbol table of its program, spells them."""
        if len(self._of_text) > 2 * MAX_NAMES:  # spellings of the same names
            self._of_text = {b"": 0}
        new = [text for text in dict.fromkeys(texts) if text not in self._of_text]
        spelt = [clean(each.removeprefix(STUB), MAX_CHARACTERS).encode() for each in new]
        for text, name in zip(new, self._demangle(pid, spelt), strict=True):
            number = self._number(KernelName(clean(name, MAX_CHARACTERS)))
            if number:
                self._of_text[text] = number
        return [self._of_text.get(text, 0) for text in texts]

    def of_place(self, place: str) -> int:
        """The number of something without a name, by where it is."""
        return self._number(KernelName(clean(place, MAX_CHARACTERS), known=False))

    def _number(self, name: KernelName) -> int:
        known = self._numbers.get(name)
        if known is None and name.text and len(self._names) <= MAX_NAMES:
            known = self._numbers[name] = len(self._names)
            self._names.append(name)
        return known or 0
