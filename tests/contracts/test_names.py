"""One name for one thing: stems of files and names of classes stand once in the whole tree.

What repeats today is listed, and the lists may only shrink: what is solved is taken off here, and cannot come
back. How many files there are, and how many have one importer, may only go down, too.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from functools import cache

import pytest

from tests.contracts.test_import_direction import imports_in, modules
from tests.contracts.tree import ROOT, SOURCE, nodes, text_of, under

# A stem is the file's name without `.py`. Most of these are a question in one stage
# and its answer or its command in others.
REPEATED_STEMS = """
    accounting annotate app asking catalogue clocks cost demo diagnosis explain exposition facts
    finding fleet gpus guard live metrics opening operations options otlp own_cost processes query
    recordings schema server sites source stacks starting surface tables tenants threads timeline
    window
"""

# Most are values that others rely on by this name: `ingero schema`, the API, ingero.yaml.
REPEATED_CLASSES = """
    Address Failure Filters Fleet Health Kept Limits Loss Pace Recorded Rows Series Watch
"""

# They say nothing of what is inside, or mean another thing in each stage.
BANNED_STEMS = "people apart before said looks metric_seats cards kernels things stuff data info core lib"
BANNED_CLASSES = "Pupil Guest Apart Thing Data Info Manager Helper"

# fleet/limits is what collector and nodes judge by, fleet/push/standing what a node makes of it by itself
MOST_FILES = 439
MOST_WITH_ONE_IMPORTER = 154


@cache
def stems() -> Counter[str]:
    return Counter(
        path.stem for path in under("src/ingero", ".py") if path.stem not in ("__init__", "__main__")
    )


@cache
def classes() -> Counter[str]:
    texts = [text_of(path) for path in under("src/ingero", ".py")]
    return Counter(node.name for text in texts for node in nodes(text) if isinstance(node, ast.ClassDef))


def repeated(found: Counter[str]) -> set[str]:
    return {name for name, count in found.items() if count > 1}


def test_a_file_is_called_what_no_other_is() -> None:
    assert repeated(stems()) == set(REPEATED_STEMS.split())


def test_a_class_is_called_what_no_other_is() -> None:
    assert repeated(classes()) == set(REPEATED_CLASSES.split())


def test_names_say_what_they_name() -> None:
    # model.operations has what kernels are called; the answer to `--kernels` keeps the word users know
    assert {stem for stem in stems() if stem in BANNED_STEMS.split()} <= {"kernels"}
    assert not {name for name in classes() if name in BANNED_CLASSES.split()}


def test_files_do_not_multiply() -> None:
    """A new subject is a new file; then lower the number where two were one, or raise it here and say why."""
    importers: dict[str, set[str]] = defaultdict(set)
    known = modules()
    names = frozenset(known)
    for module, path in known.items():
        for found in imports_in(text_of(path), names):
            importers[found.module].add(module)
    one = [
        module
        for module, path in known.items()
        if path.name != "__init__.py" and len(importers[module] - {module}) == 1
    ]
    assert len(known) <= MOST_FILES
    assert len(one) <= MOST_WITH_ONE_IMPORTER


@pytest.mark.parametrize("drawing", ["one call", "one verdict"])
def test_the_drawings_name_files_that_are_there(drawing: str) -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    block = page.split(f"### The way of {drawing}\n", 1)[1].split("```")[1]
    named = re.findall(r"[\w/.]+\.(?:py|c|h)\b", block)
    assert len(named) >= 10
    missing = [each for each in named if not ((SOURCE / "ingero" / each).exists() or (ROOT / each).exists())]
    assert not missing
