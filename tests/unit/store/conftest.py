from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ingero.model.window import Window
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, fixed_clock

NODE = "gpu-node-01"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ingero.db"


@pytest.fixture
def stored(path: Path) -> Iterator[Callable[..., Reader]]:
    """Write windows, then open what was written."""
    opened: list[Reader] = []

    def store(*windows: Window, node: str = NODE) -> Reader:
        with Writer(path, node, fixed_clock(), OPERATIONS) as writer:
            for window in windows:
                assert writer.write(window) == ""
        opened.append(Reader(path))
        return opened[-1]

    yield store
    for reader in opened:
        reader.close()


@pytest.fixture
def ask(stored: Callable[..., Reader]) -> Callable[..., list[dict[str, Any]]]:
    """Write windows and ask for rows as dictionaries."""

    def rows(sql: str, *windows: Window) -> list[dict[str, Any]]:
        with stored(*windows) as reader:
            cursor = reader.connection.execute(sql)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    return rows
