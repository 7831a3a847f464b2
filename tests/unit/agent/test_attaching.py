"""A library that cannot be attached, or not at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingero.agent.name_rounds import LAUNCHES
from ingero.agent.targets import Targets
from ingero.attach.probes import BY_NAME
from ingero.attach.session import APART, BOTH_NS, Session
from ingero.attach.shapes import Point
from ingero.discover.libraries import Library
from ingero.errors import AttachError
from ingero.scenarios import cuda

from .fakes import Links


class Shape:
    """Takes so many attaches, then refuses; and paths it does not know."""

    name = "session"

    def __init__(self, takes: int = 1000) -> None:
        self.takes = takes
        self.links: list[Links] = []
        self.stale: set[str] = set()

    def attach(self, path: str, points: Sequence[Point]) -> Links:
        if path in self.stale or len(self.links) >= self.takes:
            raise OSError(2, "uprobe_multi")
        self.links.append(Links())
        return self.links[-1]


@pytest.fixture
def runtime() -> str:
    return str(cuda.stub_dir() / "libcudart.so.12")


def test_what_is_attached_in_part_is_taken_off_again(runtime: str) -> None:
    shape = Shape(takes=1)
    session = Session(shape)  # type: ignore[arg-type]
    with pytest.raises(AttachError):
        session.attach((1, 2), runtime, runtime, "runtime", hot_runtime=False)
    assert [links.held for links in shape.links] == [False]
    assert session.files == {}


def test_a_file_whose_process_has_just_ended_does_not_end_the_trace(runtime: str) -> None:
    shape = Shape()
    session = Session(shape)  # type: ignore[arg-type]
    session.attach((1, 2), runtime, runtime, "runtime", hot_runtime=True)
    session.set_apart(LAUNCHES, {}, 0)
    session.take_off()
    shape.stale.add("/proc/7/map_files/a-b")
    session.put_on({(1, 2): "/proc/7/map_files/a-b"})
    assert (True, APART) not in session.files[1, 2].links
    session.put_on({(1, 2): runtime})
    assert (True, APART) in session.files[1, 2].links


def test_a_function_that_gets_a_link_of_its_own_is_never_without_one(runtime: str) -> None:
    """The new links are on before the old one goes; which of them counts is told in between."""
    shape = Shape()
    session = Session(shape)  # type: ignore[arg-type]
    session.attach((1, 2), runtime, runtime, "runtime", hot_runtime=True)
    before = list(shape.links)
    variants = session.set_apart(LAUNCHES, {}, now_ns=0)
    assert all(links.held for links in shape.links)
    assert {variants[number] for number in LAUNCHES} == {1}
    assert BY_NAME["cudaStreamSynchronize"][0] not in variants  # waits may last: theirs is left alone
    session.retire(BOTH_NS)
    assert sum(not links.held for links in before) == 1
    assert all(links.held for links in shape.links if links not in before)
    again = session.set_apart(frozenset(), {}, now_ns=BOTH_NS)
    assert {again[number] for number in LAUNCHES} == {0}


def test_only_functions_that_are_apart_go_off(runtime: str) -> None:
    shape = Shape()
    session = Session(shape)  # type: ignore[arg-type]
    session.attach((1, 2), runtime, runtime, "runtime", hot_runtime=True)
    session.set_apart(LAUNCHES, {}, 0)
    session.retire(BOTH_NS)
    on = [links for links in shape.links if links.held]
    session.take_off()
    assert len([links for links in on if not links.held]) == 1
    session.take_off(everything=True)
    assert not any(links.held for links in shape.links)
    session.put_on({})
    assert len([links for links in shape.links if links.held]) == len(on)


def test_a_library_seen_while_it_is_loaded_is_looked_at_again(runtime: str, tmp_path: Path) -> None:
    """Its mapping had another end when its place was read."""
    early = tmp_path / "early"
    early.symlink_to(runtime)
    shape = Shape()
    shape.stale.add(str(early))
    session = Session(shape)  # type: ignore[arg-type]
    kernel: Any = SimpleNamespace(write_proc=lambda *_: None, forget_proc=lambda *_: None)
    scope: Any = SimpleNamespace(fixed=True, named=list, pids=set())
    targets = Targets(kernel, session, scope)
    paths = iter([str(early), runtime])
    targets._finder = SimpleNamespace(  # type: ignore[assignment]
        libraries_of=lambda _pid: [Library(next(paths), runtime, 1, 2, "runtime")]
    )
    targets.announce(os.getpid())
    assert list(session.files) == [(1, 2)]
    assert targets.warnings == {}
