"""What Python believes about the records is what the compiler made of wire.h."""

from __future__ import annotations

import ast
import importlib.util
import re
from importlib import resources
from types import ModuleType

import pytest

from tests.contracts.tree import ROOT, name, nodes, text_of, under


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


def numbers_of_the_probes() -> dict[str, int]:
    """What is called by a name on the kernel side: members of enums, and what is left of defines."""
    texts = [path.read_text(encoding="utf-8") for path in under("probes", ".h", ".c")]
    members = r"^\s*(?:#define\s+)?([A-Z][A-Z0-9_]+)\s*=?\s*(0x[0-9a-f]+|[1-9]\d*)U?L*\b(?!\s*<<)"
    return {
        found[1]: int(found[2], 0) for text in texts for found in re.finditer(members, text, re.MULTILINE)
    }


ARITHMETIC = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)


def numbers_in(text: str) -> list[tuple[str, int]]:
    """`NAME = 8`, `NAME = 8 << 20`, `NAME = 2 * 1024` of a module, a class or a function."""
    found = []
    for node in nodes(text):
        if isinstance(node, ast.Assign) and all(
            isinstance(each, ARITHMETIC) for each in ast.walk(node.value)
        ):
            value = eval(ast.unparse(node.value))
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
            found += [(each, value) for each in names if isinstance(value, int) and each.isupper()]
    return found


# What is called alike, is as large, and is something else.
OTHERS = {
    "PF_KTHREAD",  # Linux's own, in /proc as in a task
    "QUEUED",  # iterations of a job; on the kernel side rounds of a thread
    "CREDIT_NS",  # of all threads; WALK_CREDIT_NS is each thread's
}
BY_CHANCE = 16  # as large as that or less, numbers with the same last words are


def same_number(here: str, value: int, there: dict[str, int]) -> bool:
    """By the same name, or by the last words of a name that begins with what it is about."""
    own = here.lstrip("_")
    if own in OTHERS:
        return False
    return there.get(own) == value or any(
        value > BY_CHANCE and each.endswith(f"_{own}") and there[each] == value for each in there
    )


def test_no_number_is_written_in_c_and_in_python() -> None:
    there = numbers_of_the_probes()
    assert there["WINDOW_BITS"] == 30
    assert there["PYTHON_ENTRY"] == 1 << 31
    again = [
        f"{name(path)}: {each} = {value}"
        for path in under("src/ingero", ".py")
        if path.name != "layout.py"
        for each, value in numbers_in(text_of(path))
        if same_number(each, value, there)
    ]
    assert not again, "take it from ingero.model.layout"


@pytest.mark.parametrize(
    ("here", "value", "same"),
    [
        ("WINDOW_BITS", 30, True),
        ("RUNTIME_RANGES", 4, True),
        ("_SLOTS", 256, True),
        ("SLOTS", 255, False),
        ("ROOM", 8, False),
    ],
)
def test_a_copied_number_is_seen(here: str, value: int, same: bool) -> None:
    assert same_number(here, value, numbers_of_the_probes()) == same
    assert numbers_in(f"{here} = {value}") == [(here, value)]
