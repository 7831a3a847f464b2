"""A database may come from anybody: values of the wrong kind are its fault, not ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from ingero.errors import StoreError
from ingero.store.reader import Reader

Answer = TypeVar("Answer", bound=msgspec.Struct)


@contextmanager
def sense_made_of(reader: Reader) -> Iterator[None]:
    """SQLite takes text for a number; whoever adds it up finds out here."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(
            f"{reader.path} holds values that cannot be right: {error}", hint="The file is damaged."
        ) from error


def checked(answer: Answer) -> Answer:
    """The same, every value of the kind it says; to be used inside `sense_made_of`."""
    msgspec.convert(msgspec.to_builtins(answer), type(answer))
    return answer
