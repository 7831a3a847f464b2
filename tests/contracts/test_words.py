"""One vocabulary: every bucket, kind and column has its plain words, and every surface uses them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from ingero.detectors import ALL as DETECTORS
from ingero.model import words
from ingero.model.metrics import ALL
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.schema import VIEWS
from ingero.serve.cli import glossary, reference
from ingero.serve.terminal import BUCKET_STYLES
from tests.contracts.tree import ROOT, nodes, text_of, under

FRONTEND = ROOT / "frontend/src"
COLUMNS_OF_A_TABLE = re.compile(r"\[(\[[^\[\]]*\](?:, \[[^\[\]]*\])+)\],")
# A second word for something that has one, and the word to use.
INSTEAD = {
    re.compile(r"(?<![-\w/])[Cc]ards?\b"): "GPU",
    # "lost" is a job's time, and a packet.
    re.compile(
        r"\b([Rr]ecord|[Ee]vent|[Cc]all|[Ss]tack|[Ss]ample|[Ll]abel)s?( or \w+)?( (was|were|are|is))? lost\b"
        r"|\blos(t|es?|ing) (records?|events?|calls|stacks|samples|labels)\b"
        r"|^[Ll]ost:? \{\}[,:)]?( \{\})?$|\b[Nn]othing was lost|\blost or not|[Ww]hat was lost( or|,)"
    ): "dropped",
}
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
    assert set(words.KINDS) == {each.name for each in DETECTORS}


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


@pytest.mark.parametrize(
    ("page", "title"),
    [("docs/glossary.md", "What can be found"), ("docs/detectors/README.md", "What is found")],
)
def test_what_nobody_looks_for_is_not_listed_with_what_can_be_found(page: str, title: str) -> None:
    found, others = (kinds_below(page, each) for each in (title, "What nobody looks for yet"))
    assert others == [each.name for each in DETECTORS if each.unwatched]
    assert found == [each.name for each in DETECTORS if not each.unwatched]


def kinds_below(page: str, title: str) -> list[str]:
    section = re.split(rf"^##? {title}$", (ROOT / page).read_text(), flags=re.M)[1]
    return re.findall(r"^\| \[`([a-z-]+)`\]", re.split(r"^## ", section, flags=re.M)[0], flags=re.M)


@pytest.mark.parametrize("rest", ["", ", in part", " of python3 (pid 1)"])
def test_what_is_not_covered_is_said_in_words(rest: str) -> None:
    assert words.covered_words(f"gpu-fault{rest}", "")[0] == f"The GPU reported a fault{rest}"
    assert words.covered_words("GPU counters, for a time", "")[0] == "GPU counters, for a time"


def test_the_metric_of_time_says_what_its_buckets_are() -> None:
    told = next(each.help for each in ALL if "bucket" in each.labels)
    assert all(f"{name} is {each.words}" in told for name, each in words.BUCKETS.items())


def test_words_are_plain() -> None:
    """No key, no underscore, no word of the machinery."""
    said = [each.words for each in words.BUCKETS.values()] + list(words.KINDS.values())
    assert not [text for text in said if re.search(r"_|runqueue|futex|syscall|runnable", text)]


def shown_to_people() -> Iterator[tuple[str, str]]:
    """Where, and what: texts of the program, of its pages and of its documents."""
    for path in under("src/ingero", ".py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        asked = path.match("serve/mcp/tools.py")  # its docstrings are what assistants read
        for number, text in _sentences(tree, docstrings=asked):
            yield f"{path.relative_to(ROOT)}:{number}", text
    for path in sorted(FRONTEND.rglob("*.js")):
        for text in re.findall(r"""(?<=["`])[^"`\n]* [^"`\n]*(?=["`])""", path.read_text(encoding="utf-8")):
            yield str(path.relative_to(ROOT)), re.sub(r"\$?\{[^{}]*\}", "{}", text)
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile")]
    pages += [*(ROOT / "changes").glob("*.md"), *(ROOT / "deploy/monitoring").glob("*.yaml")]
    pages += [each for each in (ROOT / "docs").rglob("*.md") if "adr" not in each.parts]
    for path in pages:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def _sentences(tree: ast.Module, *, docstrings: bool) -> Iterator[tuple[int, str]]:
    """Strings of more than a word, values in them as `{}`; no SQL."""
    said = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}  # docstrings
    said |= {id(part) for each in ast.walk(tree) if isinstance(each, ast.JoinedStr) for part in each.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(each.value) if isinstance(each, ast.Constant) else "{}" for each in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in said and not docstrings:
                continue
            text = node.value
        else:
            continue
        if " " in text and not re.match(r"\s*(SELECT|INSERT|CREATE|WITH|UPDATE|DELETE)\b", text):
            yield node.lineno, text


def test_one_word_for_one_thing() -> None:
    texts = list(shown_to_people())
    assert len(texts) > 5000
    found = [
        (where, text, word) for where, text in texts for told, word in INSTEAD.items() if told.search(text)
    ]
    assert found == []
