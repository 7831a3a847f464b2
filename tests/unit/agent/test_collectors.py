"""Which function of an interpreter's file is probed, and what is said where none can be."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ingero.agent.interpreters import UNUSED_NS, Collectors
from ingero.attach.shapes import Point
from ingero.discover.libraries import Library
from ingero.native.elf import find_symbols

from .fakes import Here

Build = Callable[..., Library]


class Recorded:
    """A shape that only remembers what it was to attach."""

    name = "recorded"

    def __init__(self) -> None:
        self.attached: list[tuple[str, list[int]]] = []

    def attach(self, path: str, points: Sequence[Point]) -> list[int]:
        self.attached.append((path, [point.offset for point in points]))
        return []


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """An interpreter's file with these functions, each a call to something."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")

    def make(*names: str, kind: Any = "python", frame: str = "-fno-omit-frame-pointer") -> Library:
        source, target = tmp_path / "source.c", tmp_path / f"libpython{len(list(tmp_path.iterdir()))}.so"
        parts = [
            f'int f{i}(int x) __asm__("{n}"); int f{i}(int x) {{ return out(x) + {i}; }}'
            for i, n in enumerate(names)
        ]
        source.write_text("int out(int);\n" + "\n".join(parts))
        flags = ("-shared", "-fPIC", "-O1", "-fcf-protection=none", frame)
        subprocess.run([compiler, *flags, "-o", target, source], check=True)
        status = target.stat()
        return Library(str(target), str(target), status.st_dev, status.st_ino, kind)

    return make


def offsets(library: Library, *names: str) -> set[int]:
    found = find_symbols(library.path, names)
    assert len(found) == len(names)
    return {symbol.offset for symbol in found.values()}


@pytest.mark.parametrize(
    "kind, names, probed",
    [
        ("python", ("gc_collect_main", "_PyGC_Collect", "collect"), ("gc_collect_main",)),
        ("python", ("_PyGC_Collect", "collect"), ("_PyGC_Collect",)),
        ("python3.9", ("collect", "gc_collect"), ("collect",)),
        ("python", ("gc_collect_main.lto_priv.0", "gc_collect_main.cold"), ("gc_collect_main.lto_priv.0",)),
        (
            "python",
            ("gc_collect_main", "gc_collect_main.constprop.0", "gc_collect_main.part.0"),
            ("gc_collect_main", "gc_collect_main.constprop.0"),
        ),
    ],
)
def test_the_collector_is_found_under_the_name_it_has_in_each_version(
    build: Build, kind: str, names: tuple[str, ...], probed: tuple[str, ...]
) -> None:
    shape, library = Recorded(), build(*names, kind=kind)
    assert Collectors(lambda: shape, frozenset(), Here()).attach(library) == ""
    [(_, points)] = shape.attached
    # Past an endbr64 perhaps, but within the first instructions.
    assert {min(offsets(library, *probed), key=lambda at: abs(at - point)) for point in points} == offsets(
        library, *probed
    )


@pytest.mark.parametrize("names", [(), ("PyGC_Collect",), ("collect",)])
def test_a_stripped_interpreter_is_said_to_be_one(build: Build, names: tuple[str, ...]) -> None:
    library = build("something", *names)
    why = Collectors(Recorded, frozenset(), Here()).attach(library)
    assert "garbage collections are not counted" in why
    assert library.path in why


def test_a_file_is_attached_once_and_released_when_nobody_uses_it_for_a_while(build: Build) -> None:
    shape, library = Recorded(), build("gc_collect_main")
    book = Collectors(lambda: shape, frozenset(), Here())
    assert [book.attach(library), book.attach(library)] == ["", ""]
    assert (len(shape.attached), book.count()) == (1, 1)
    book.release_unused({library.file}, 1)
    book.release_unused((), 1 + UNUSED_NS)
    assert book.count() == 1
    book.release_unused((), 2 + UNUSED_NS)
    assert book.count() == 0
    book.attach(library)
    assert len(shape.attached) == 2


def test_a_kernel_that_refuses_is_asked_once(build: Build) -> None:
    asked = []

    def refuse() -> Recorded:
        asked.append(1)
        raise OSError(22, "Invalid argument\nlong log")

    book = Collectors(refuse, frozenset(), Here())
    why = [book.attach(build("gc_collect_main")) for _ in range(2)]
    assert why[0] == why[1]
    assert "Invalid argument" in why[0]
    assert "long log" not in why[0]
    assert len(asked) == 1


def test_nothing_is_loaded_when_it_is_left_out(build: Build) -> None:
    def never() -> Recorded:
        raise AssertionError

    book = Collectors(never, frozenset({"python"}), Here())
    assert book.attach(build("gc_collect_main")) == ""
    book.release_unused((), 1)
    book.close()
