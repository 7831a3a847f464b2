"""The table of CPython's offsets is what the headers say."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from ingero.discover.python_offsets import OFFSETS, STATED
from ingero.model.layout import PYTHON_LAYOUT
from tests.contracts.tree import ROOT


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("python_offsets_tool", ROOT / "tools/python_offsets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
@pytest.mark.parametrize("include", [*tool().default_folders()], ids=lambda path: path.name)
def test_headers_that_are_here_say_what_the_table_says(include: Path) -> None:
    table, stated = {}, {}
    minor = tool().add(include, table, stated)
    if minor >= tool().FIRST_FREE_THREADED:
        tool().add(include, table, stated, "-DPy_GIL_DISABLED=1")
    assert table == {key: OFFSETS[key] for key in table}
    assert stated == {key: STATED[key] for key in stated}


def test_every_supported_version_is_in_the_table() -> None:
    assert OFFSETS.keys() == {*((minor, False) for minor in range(9, 15)), (13, True), (14, True)}
    assert STATED.keys() == {13, 14}


def test_offsets_fit_the_record() -> None:
    names = set(PYTHON_LAYOUT.names or ())
    for offsets in OFFSETS.values():
        assert all(0 <= value < 1 << 16 for name, value in offsets.items() if name in names)
