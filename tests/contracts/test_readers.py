"""The agent's loop never reads what may never come: that is asked of a reader process (ADR 27)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.tree import SOURCE, nodes, parsed, text_of

# In discover.processes: what reads a process's memory, which somebody may hold for ever.
ONLY_BY_READERS = {"environment"}
ONLY_WITHOUT_MEMORY = {"read_process", "read_process_and_container"}
READERS = {"reading.py"}
AGENT = sorted(each for each in (SOURCE / "ingero/agent").glob("*.py") if each.name not in READERS)


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """By the name of what is called, of functions and of `processes`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "processes"
        ):
            yield node.func.attr, node


def reads_memory(source: str) -> list[int]:
    """Lines that read memory of another process here."""
    found = []
    for name, call in calls(parsed(source)):
        without = any(
            each.arg == "with_memory" and isinstance(each.value, ast.Constant) and each.value.value is False
            for each in call.keywords
        )
        if name in ONLY_BY_READERS or (name in ONLY_WITHOUT_MEMORY and not without):
            found.append(call.lineno)
    return found


@pytest.mark.parametrize("module", AGENT, ids=lambda each: each.name)
def test_command_lines_and_environments_are_read_by_readers_alone(module: Path) -> None:
    assert reads_memory(text_of(module)) == []


@pytest.mark.parametrize("module", AGENT, ids=lambda each: each.name)
def test_names_that_strangers_chose_are_made_readable_by_readers_alone(module: Path) -> None:
    assert "native.demangle" not in text_of(module)


def test_what_would_be_found_is_found() -> None:
    bad = (
        "processes.read_process(1)\nprocesses.environment(1)\nread_process_and_container(1, with_memory=True)"
    )
    assert reads_memory(bad) == [1, 2, 3]
    assert reads_memory("processes.read_process(1, with_memory=False)") == []


@pytest.mark.parametrize("module", AGENT, ids=lambda each: each.name)
def test_nobody_in_the_agent_can_be_made_without_readers(module: Path) -> None:
    """A default would be a reading in the loop that nobody notices."""
    for node in nodes(text_of(module)):
        if isinstance(node, ast.FunctionDef):
            named = [*node.args.posonlyargs, *node.args.args]
            with_default = {each.arg for each in named[len(named) - len(node.args.defaults) :]}
            allowed = module.name == "own_cost.py"  # there it is numbers of processes
            assert allowed or "readers" not in with_default, f"{module.name}:{node.lineno}"
