"""Whoever catches everything raises it again, or says in the same line why it ends there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.contracts.tree import dotted, name, nodes, text_of, under

BROAD = {"Exception", "BaseException"}


def is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or dotted(kind) in BROAD for kind in kinds)


def unexplained(text: str) -> Iterator[int]:
    """The lines on which source swallows whatever comes, and does not say why."""
    lines = text.splitlines()
    for node in nodes(text):
        if not isinstance(node, ast.ExceptHandler) or not is_broad(node):
            continue
        if not isinstance(node.body[-1], ast.Raise):
            comment = lines[node.lineno - 1].partition("#")[2].strip()
            if not comment or comment.startswith("noqa"):
                yield node.lineno


def test_nothing_is_swallowed_without_a_reason() -> None:
    sources = [path for folder in ("src", "tools", "benchmarks") for path in under(folder, ".py")]
    assert not [f"{name(path)}:{line}" for path in sources for line in unexplained(text_of(path))]


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        ("except Exception:\n    pass", True),
        ("except (ValueError, BaseException) as error:\n    print(error)", True),
        ("except:\n    pass", True),
        ("except Exception:  # noqa: BLE001\n    pass", True),
        ("except Exception:  # the next one may do better\n    pass", False),
        ("except BaseException:\n    close()\n    raise", False),
        ("except ValueError:\n    pass", False),
    ],
)
def test_a_swallowed_exception_is_noticed(handler: str, found: bool) -> None:
    assert bool(list(unexplained(f"try:\n    work()\n{handler}\n"))) == found
