"""A library that cannot be attached, or not at once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ingero.agent import candidates
from ingero.agent.communicators import Communicators
from ingero.agent.launched_kernels import LAUNCHES
from ingero.agent.reading import Reading
from ingero.agent.targets import Targets
from ingero.attach.probes import BY_NAME
from ingero.attach.session import APART, BOTH_NS, Session
from ingero.attach.shapes import Point
from ingero.discover import processes
from ingero.discover.libraries import Library
from ingero.errors import AttachError
from ingero.model.window import OPERATION, Container, Process
from ingero.scenarios import cuda

from .fakes import Here, Links


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
    assert {again[number] for number in LAUNCHES} == {2}  # of no link that may still be on


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


class Finds(Here):
    """Reads as ever, but finds these libraries in every process."""

    def __init__(self, libraries: Callable[[], list[Library]]) -> None:
        super().__init__()
        self._libraries = libraries

    def ask(self, what: Any, *args: Any, **more: Any) -> Any:
        return self._libraries() if what is Reading.libraries_of else super().ask(what, *args, **more)


def targets_of(session: Session) -> Targets:
    kernel: Any = SimpleNamespace(write_proc=lambda *_: None, forget_proc=lambda *_: None)
    scope: Any = SimpleNamespace(fixed=True, everything=False, named=list, pids=set())
    return Targets(kernel, session, scope, Communicators([], Here()), Here())


@pytest.mark.parametrize(("folder", "hot"), [("", False), ("/elsewhere", True)])
def test_a_driver_found_in_a_folder_the_loader_does_not_know_leaves_launches_at_the_runtime(
    runtime: str, folder: str, hot: bool
) -> None:
    """Launches are probed at the driver ahead only where the runtime would get that very driver."""
    session = Session(Shape())  # type: ignore[arg-type]
    driver = runtime.replace("libcudart.so.12", "libcuda.so.1")
    shown = folder + driver
    ahead = [Library(driver, shown, 1, 3, "driver"), Library(runtime, runtime, 1, 2, "runtime")]
    targets_of(session).attach_ahead(ahead)
    assert session.files[1, 2].hot == hot


def test_launches_that_do_not_reach_the_driver_probed_ahead_are_told_to_be_missing(runtime: str) -> None:
    session = Session(Shape())  # type: ignore[arg-type]
    targets = targets_of(session)
    library = Library(runtime, runtime, 1, 2, "runtime")
    targets._readers = Finds(lambda: [library])
    targets._with_driver = {runtime.rpartition("/")[0]}
    targets.announce(os.getpid())
    assert not session.files[1, 2].hot
    calls = np.zeros(1, OPERATION)
    calls["pid"], calls["op"], calls["count"] = os.getpid(), 1, 100
    for _ in range(2):
        targets.check_reach(calls, {1: "runtime"})
    assert session.files[1, 2].hot
    (told,) = targets.late.take_news()
    assert "of launches and copies not watched: libcudart.so.12 does not reach" in told.why


def test_a_library_seen_while_it_is_loaded_is_looked_at_again(runtime: str, tmp_path: Path) -> None:
    """Its mapping had another end when its place was read."""
    early = tmp_path / "early"
    early.symlink_to(runtime)
    shape = Shape()
    shape.stale.add(str(early))
    session = Session(shape)  # type: ignore[arg-type]
    targets = targets_of(session)
    paths = iter([str(early), runtime])
    targets._readers = Finds(lambda: [Library(next(paths), runtime, 1, 2, "runtime")])
    targets.announce(os.getpid())
    assert list(session.files) == [(1, 2)]
    assert targets.warnings == {}


class Everybody:
    """A trace of everybody's processes."""

    fixed, everything, pids = False, False, frozenset[int]()

    def admits(self, *_: object) -> bool:
        return True


def mapped(pids: Sequence[int]) -> list[Any]:
    return [(pid, 0, 0, 0, 0, 1, 1, "/usr/lib/libcudart.so.12") for pid in pids]


@pytest.fixture
def crowd() -> Iterator[list[int]]:
    """Processes, each with a child."""
    made = [subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) for _ in range(4)]
    try:
        while not all(processes.descendants(each.pid) for each in made):
            pass
        yield [each.pid for each in made]
    finally:
        for child in processes.descendants(*(each.pid for each in made)):
            os.kill(child, signal.SIGKILL)
        for each in made:
            each.wait()


def test_children_of_many_new_targets_are_found_by_one_look_at_all_processes(
    runtime: str, crowd: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = targets_of(Session(Shape()))  # type: ignore[arg-type]
    targets._scope = Everybody()  # type: ignore[assignment]
    targets._readers = Finds(lambda: [Library(runtime, runtime, 1, 2, "runtime")])
    looks, descendants = [], processes.descendants

    def counted(*pids: int) -> list[int]:
        looks.append(pids)
        return descendants(*pids)

    monkeypatch.setattr(processes, "descendants", counted)
    assert targets.on_mappings(mapped(crowd)) == crowd
    assert looks == [tuple(crowd)]
    assert set(targets.live) == {*crowd, *descendants(*crowd)}


def test_what_is_too_much_at_once_is_looked_at_the_next_time(
    runtime: str, crowd: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MAX_EXAMINED", 3)
    targets = targets_of(Session(Shape()))  # type: ignore[arg-type]
    targets._scope = Everybody()  # type: ignore[assignment]
    targets._readers = Finds(lambda: [Library(runtime, runtime, 1, 2, "runtime")])
    assert targets.on_mappings(mapped(crowd)) == crowd[:3]
    assert targets.on_mappings([]) == crowd[3:]
    assert targets.on_mappings([]) == []


def test_containers_that_come_and_go_for_months_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero.agent.targets.MAX_CONTAINERS", 10)
    targets = targets_of(Session(Shape()))  # type: ignore[arg-type]
    for number in range(1, 100):
        targets.note(Process(number, 1, "job", "", number, 0), Container(number, f"/{number}"))
        targets.note(Process(number, 1, "job", "", number, 0), Container(number, f"/{number}"))
        assert [each.cgroup_id for each in targets.take_news()[1]] == [number]
    assert len(targets._known_containers) == 10
