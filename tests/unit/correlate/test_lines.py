"""Which line of a stack is the user's own, and which of many lines weighs most."""

from __future__ import annotations

import pytest

from ingero.correlate.activity import heaviest, is_users, places, source_of
from ingero.model.finding import SourceLine
from ingero.model.stack import Frame
from tests.sites import Code, frames


def python(file: str | None, line: int | None = 3, function: str = "f") -> Frame:
    return Frame("python", function, file, line, None)


@pytest.mark.parametrize(
    "file",
    [
        "/home/a/train.py",
        "train.py",
        "/workspace/lib/model.py",
        "/home/python3.12/train.py",
        "<string>",
        "<stdin>",
        "<ipython-input-3-abc>",
        "<frozen train>",
        "/tmp/ipykernel_77/123.py",
    ],
)
def test_files_of_the_user(file: str) -> None:
    assert is_users(file)


@pytest.mark.parametrize(
    "file",
    [
        "/usr/lib/python3/dist-packages/torch/nn/modules/module.py",
        "/home/a/venv/lib/python3.12/site-packages/torch/optim/adam.py",
        "/usr/lib/python3.11/threading.py",
        "/usr/lib64/python3.12/json/decoder.py",
        "/opt/python/lib/python3.13t/queue.py",
        "/usr/lib/python312.zip/json/decoder.py",
        "<frozen importlib._bootstrap>",
        "<frozen runpy>",
        "",
        None,
    ],
)
def test_files_of_libraries(file: str | None) -> None:
    assert not is_users(file)


def test_the_innermost_frame_of_the_user_is_the_line() -> None:
    assert source_of(frames("forward train.py:142")) == SourceLine("train.py", 142, "forward")


def test_a_stack_of_libraries_alone_shows_the_innermost_of_them() -> None:
    stack = (
        python("/usr/lib/python3.11/queue.py", 171, "get"),
        python("/usr/lib/python3.11/threading.py", 9),
    )
    assert source_of(stack) == SourceLine("/usr/lib/python3.11/queue.py", 171, "get")


def test_a_frame_without_a_line_is_passed_over() -> None:
    assert source_of((python("train.py", None), python("train.py", 9))) == SourceLine("train.py", 9, "f")


def test_native_frames_and_notes_are_no_line() -> None:
    stack = (
        Frame("native", "main", "main.c", 7, None),
        Frame("note", "[native frames not readable: libtorch]", None, None, None),
    )
    assert source_of(stack) is None


def test_stacks_with_the_same_line_count_together() -> None:
    code = Code()
    one, two, three = (code.hash(line) for line in ("a x.py:1", "b x.py:2", "c x.py:3"))
    code.stacks = lambda hashes: {  # type: ignore[method-assign]
        one: (Frame("native", "cuLaunch", None, None, None), *frames("a x.py:1")),
        two: frames("a x.py:1"),
        three: frames("c x.py:3"),
    }
    place = heaviest(code, {one: 30.0, two: 25.0, three: 45.0})
    assert place is not None
    assert (place.source, place.weight, place.stacks) == (SourceLine("x.py", 1, "a"), 55.0, (one, two))
    assert place.stack[0].function == "cuLaunch"  # the heavier of the two


def test_a_stack_without_python_is_a_place_without_a_line() -> None:
    code = Code()
    number = code.hash("a x.py:1")
    code.stacks = lambda hashes: {number: (Frame("native", "read", None, None, "libc.so.6"),)}  # type: ignore[method-assign]
    place = heaviest(code, {number: 1.0})
    assert place is not None
    assert (place.source, place.frames()[0].function) == (None, "read")


def test_what_has_no_stack_or_is_not_known_is_part_of_the_whole() -> None:
    code = Code()
    number = code.hash("a x.py:1")
    (place,) = places(code, {number: 25.0, 0: 50.0, 999: 25.0})
    assert place.share == 0.25
    assert places(code, {}) == []
    assert heaviest(code, {0: 5.0}) is None
