"""What Python believes about the records is what the compiler made of wire.h."""

from __future__ import annotations

import importlib.util
from importlib import resources
from types import ModuleType

import pytest

from tests.contracts.tree import ROOT


@pytest.fixture(scope="module")
def layout_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layout_tool", ROOT / "tools/layout.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_layout_is_the_compiled_probes_layout(layout_tool: ModuleType, machine: str) -> None:
    built = resources.files("ingero.native").joinpath("bpf", f"layout.{machine}.bpf.o")
    written = (ROOT / "src/ingero/model/layout.py").read_text(encoding="utf-8")
    assert layout_tool.layout_text(str(built)) == written, "run `make layout`"
