"""One vocabulary: every bucket, kind and column has its plain words, and every surface uses them."""

from __future__ import annotations

import ast
import re

import pytest

from ingero.detectors import KINDS as DETECTORS
from ingero.model import words
from ingero.model.metrics import ALL
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.schema import VIEWS
from ingero.serve.cli import glossary, reference
from ingero.serve.terminal import BUCKET_STYLES
from tests.contracts.tree import ROOT, nodes, text_of, under

FRONTEND = ROOT / "frontend/src"
COLUMNS_OF_A_TABLE = re.compile(r"\[(\[[^\[\]]*\](?:, \[[^\[\]]*\])+)\],")
# Headings that are the name of what was asked for: a label's key, a column of SQL, what costs are grouped by.
GIVEN = {"namespace", "job", "user", "pod", "owner", ""}


def headings_of_terminal() -> set[str]:
    """What the first argument of Rows and Fitting holds, and every tuple named ..._COLUMNS."""
    found: set[str] = set()
    for path in under("src/ingero/serve/cli", ".py") + under("src/ingero/serve/tui", ".py"):
        for node in nodes(text_of(path)):
            found |= {name for name in _headings(node) if "_" not in name}  # those are columns of SQL
    return found


def _headings(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Assign | ast.AugAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        named = isinstance(target, ast.Name) and re.search(r"(^|_)(columns|COLUMNS|head)$", target.id)
        return _texts(node.value.body if isinstance(node.value, ast.IfExp) else node.value) if named else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Rows", "Fitting"):
        return _texts(node.args[0]) if node.args else []
    return []


def _texts(node: ast.AST | None) -> list[str]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else []
    return [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]


def headings_of_pages() -> set[str]:
    found: set[str] = set()
    for path in FRONTEND.rglob("*.js"):
        for columns in re.findall(
            r"\[(\[[^\[\]]*\](?:, \[[^\[\]]*\])+)\],", path.read_text(encoding="utf-8")
        ):
            found |= set(re.findall(r'\["([^"]*)", "[a-z-]*"\]', columns))
    return found


def test_every_bucket_has_words_on_every_surface() -> None:
    assert set(words.BUCKETS) >= set(BUCKET_NAMES)
    assert list(words.BUCKETS) == list(BUCKET_STYLES)  # the same order everywhere


def test_every_kind_has_words() -> None:
    assert set(words.KINDS) == set(DETECTORS)


@pytest.mark.parametrize("headings", [headings_of_terminal, headings_of_pages])
def test_every_column_has_words(headings: object) -> None:
    found = {each.lower() for each in headings()}  # type: ignore[operator]
    assert len(found) > 20
    assert found - words.COLUMNS.keys() - GIVEN == set()


def test_no_words_are_left_of_columns_that_went() -> None:
    shown = {each.lower() for each in headings_of_terminal() | headings_of_pages()}
    assert words.COLUMNS.keys() - shown == set()


def test_every_column_of_sql_has_words() -> None:
    assert all(text.strip() for view in VIEWS for text in view.columns.values())


def test_page_and_module_are_what_the_table_says() -> None:
    assert (ROOT / "docs/glossary.md").read_text() == glossary.page(reference.WRITTEN_BY)
    assert (FRONTEND / "words.js").read_text() == glossary.module()


def test_the_metric_of_time_says_what_its_buckets_are() -> None:
    told = next(each.help for each in ALL if "bucket" in each.labels)
    assert all(f"{name} is {each.words}" in told for name, each in words.BUCKETS.items())


def test_words_are_plain() -> None:
    """No key, no underscore, no word of the machinery."""
    said = [each.words for each in words.BUCKETS.values()] + list(words.KINDS.values())
    assert not [text for text in said if re.search(r"_|runqueue|futex|syscall|runnable", text)]
