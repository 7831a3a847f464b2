"""Who may import whom. The table is the rule; there are no exceptions beside it.

Every import counts: inside functions, under TYPE_CHECKING, and modules named in
strings for importlib.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.contracts.tree import SOURCE, nodes, parsed, text_of, under

BASICS = frozenset(
    {
        "errors",
        "clock",
        "units",
        "config",
        "config_keys",
        "config_fleet",
        "config_tenants",
        "version",
        "annotate",
        "isolated",
        "rights",
        "becoming",
    }
)
STAGE = BASICS | {"model", "native"}

# A part of the program, and the parts it may import besides itself.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "version": frozenset(),
    "errors": frozenset(),
    "annotate": frozenset(),  # jobs import it: nothing comes along
    "clock": frozenset({"errors"}),
    "units": frozenset({"errors"}),
    "config": frozenset({"errors", "units", "config_keys", "config_fleet", "config_tenants"}),
    "config_keys": frozenset(),
    "config_fleet": frozenset({"config_keys"}),
    "config_tenants": frozenset({"config_keys"}),
    "privileges": frozenset(),
    "becoming": frozenset(),  # runs as root
    "rights": frozenset({"errors", "native"}),
    "isolated": frozenset(),  # a fresh interpreter runs it before anything else of ours
    "model": BASICS,
    "native": BASICS,
    "discover": STAGE,
    "attach": STAGE,
    "capture": STAGE,
    "correlate": STAGE,
    "store": STAGE,
    "detectors": BASICS | {"model", "correlate"},
    "fleet": BASICS | {"model"},
    "governor": STAGE | {"attach"},
    "agent": STAGE
    | {"discover", "attach", "capture", "governor", "correlate", "detectors", "store", "serve.answers"}
    | {"privileges"},
    "scenarios": BASICS | {"model", "store", "correlate", "detectors", "serve.answers"},
    "serve.answers": STAGE | {"store", "discover", "attach", "correlate", "detectors", "fleet"},
    "serve.terminal": BASICS | {"model"},
    "serve.letters": BASICS,
    "serve.called": frozenset(),
    "serve.web": BASICS,
    "serve.mcp": BASICS | {"model", "serve.answers", "scenarios"},
    "serve.metrics": BASICS | {"model", "serve.answers", "serve.web", "fleet", "privileges"},
    "serve.dashboard": BASICS | {"version", "model", "serve.answers", "serve.called"},
    "serve.cli": BASICS
    | {
        "model",
        "serve.answers",
        "serve.terminal",
        "serve.letters",
        "serve.called",
        "serve.tui",
        "serve.web",
        "serve.mcp",
        "serve.metrics",
        "serve.dashboard",
        "agent",
        "fleet",
        "privileges",
        "scenarios",
    },
    "serve.tui": BASICS | {"model", "serve.answers", "serve.terminal", "serve.letters"},
    "serve": frozenset(),  # only a folder
    "__main__": frozenset({"serve.cli"}),
}

# These only when they are used: a reading command does not load the probes' code.
ONLY_LAZILY: dict[str, frozenset[str]] = {
    "serve.answers": frozenset({"attach", "discover", "native"}),
    "serve.cli": frozenset(
        {
            "agent",
            "fleet",
            "scenarios",
            "serve.tui",
            "serve.web",
            "serve.mcp",
            "serve.metrics",
            "serve.dashboard",
        }
    ),
    "serve.mcp": frozenset({"scenarios"}),
}


class Import(NamedTuple):
    module: str
    line: int
    eager: bool


def part_of(module: str) -> str:
    """The table's name for a module: ingero.store.reader is `store`."""
    words = module.split(".")[1:]
    if not words or words == ["__init__"]:
        return "version"
    return ".".join(words[:2]) if words[0] == "serve" and len(words) > 1 else words[0]


def module_of(path: Path) -> str:
    words = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def modules() -> dict[str, Path]:
    return {module_of(path): path for path in under("src", ".py")}


@cache
def imports_in(text: str, known: frozenset[str]) -> tuple[Import, ...]:
    """Every module of ours that this source names, wherever it does."""
    tree = parsed(text)
    eager = set(map(id, _run_at_import(tree)))
    return tuple(
        Import(module, getattr(node, "lineno", 0), id(node) in eager)
        for node in nodes(text)
        for module in _named(node, known)
    )


def _named(node: ast.AST, known: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (each.name for each in node.names if each.name.split(".")[0] == "ingero")
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: a relative import"
        if node.module and node.module.split(".")[0] == "ingero":
            whole = [f"{node.module}.{each.name}" for each in node.names]
            yield from (each if each in known else node.module for each in whole)
    elif isinstance(node, ast.Constant) and node.value in known and node.value != "ingero":
        yield str(node.value)  # for importlib


def _run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Imports outside functions and outside `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        yield from _run_at_import(node)


def broken_rules(module: str, text: str, known: frozenset[str]) -> list[str]:
    part = part_of(module)
    allowed = MAY_IMPORT[part] | {part}
    late = ONLY_LAZILY.get(part, frozenset())
    broken = []
    for found in imports_in(text, known):
        other = part_of(found.module)
        if other not in allowed:
            broken.append(f"{module}:{found.line} imports {found.module}: {part} may not import {other}")
        elif other in late and found.eager:
            broken.append(f"{module}:{found.line} imports {found.module} before it is needed")
    return broken


def test_every_import_is_one_the_table_allows() -> None:
    known = modules()
    names = frozenset(known)
    broken = [line for module, path in known.items() for line in broken_rules(module, text_of(path), names)]
    assert not broken, "\n".join(broken)


def test_every_module_has_a_place_in_the_table() -> None:
    assert not [module for module in modules() if part_of(module) not in MAY_IMPORT]


def test_the_table_has_no_cycle_among_the_stages() -> None:
    stages = {"discover", "attach", "capture", "correlate", "store"}
    assert not {(a, b) for a in stages for b in MAY_IMPORT[a] & stages if a != b}
    assert [part for part, allowed in MAY_IMPORT.items() if stages <= allowed] == ["agent"]


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("ingero.store.reader", "from ingero.attach import probes"),
        ("ingero.store.reader", "def f():\n    import ingero.capture.ring"),
        ("ingero.capture.ring", "if TYPE_CHECKING:\n    from ingero.discover.host import Host"),
        ("ingero.serve.tui.app", "from ingero import store"),
        ("ingero.serve.cli.query", "importlib.import_module('ingero.store.reader')"),
        ("ingero.serve.answers.checks", "from ingero.discover import host_checks as checks"),
        ("ingero.model.window", "from ingero.store.reader import Reader"),
    ],
)
def test_a_broken_rule_is_noticed(module: str, text: str) -> None:
    assert broken_rules(module, text, frozenset(modules()))
