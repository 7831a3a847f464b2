"""What is fuzzed: a reader, what it is given, and what it may say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fuzz.mutate import Chance, mutated

CORPUS = Path(__file__).parent / "corpus"
Try = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Target:
    """`ready` is entered once; what it gives is called with every input.

    IngeroError is always an answer; `documented` are the other exceptions the reader is
    known for. Everything else that is raised is a failure.
    """

    name: str
    corpus: Callable[[], Sequence[bytes]]
    ready: Callable[[], AbstractContextManager[Try]]
    words: Sequence[bytes] = ()
    documented: tuple[type[Exception], ...] = ()
    mutate: Callable[[Sequence[bytes], Chance, Sequence[bytes]], bytes] = mutated


def kept(name: str) -> Callable[[], Sequence[bytes]]:
    """The corpus of this name in the tree, one input per file."""

    def read() -> Sequence[bytes]:
        found = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
        if not found:
            raise FileNotFoundError(f"the corpus {name} is empty")
        return found

    return read
