"""Stack ids become stacks, from records as the kernel sends them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingero.capture import code_objects, stacks
from ingero.capture.code_objects import CodeKey, Origin
from ingero.capture.stacks import StackBook
from ingero.model import layout
from ingero.model.layout import PythonState
from ingero.model.stack import Frame, NativeFrame, note, resolved

ENTRY = code_objects.PYTHON_ENTRY
NO_CODES = np.zeros(0, layout.CODE)
NO_LONG_CODES = np.zeros(0, layout.CODE_LONG)
NO_STACKS = np.zeros(0, layout.STACK)
ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


def frames_at(pid: int, addresses: NDArray[np.uint64], start_ns: int) -> list[NativeFrame | None]:
    """Code is below 1000; it is called what it is looked up by."""
    return [
        NativeFrame(f"at{each}", "/lib/libx.so", each) if each < 1000 else None for each in addresses.tolist()
    ]


def line_at(version: tuple[int, int], table: bytes, first_line: int, at: int) -> int | None:
    return first_line + at


def book() -> StackBook:
    return StackBook(frames_at, line_at)


def stack(
    number: int = 1,
    python: Iterable[tuple[int, int]] = (),
    native: Iterable[int] = (),
    *,
    pid: int = 100,
    start_ns: int = 7,
    depth: int | None = None,
    state: int = PythonState.PYTHON_READ,
    cut: int = 0,
) -> NDArray[np.void]:
    """Python frames as (code, at), all with sign 5."""
    record = np.zeros(1, layout.STACK)
    row = record[0]
    row["h"]["pid"], row["h"]["start_ns"], row["id"] = pid, start_ns, number
    rows = [(code, at, 5) for code, at in python]
    row["python"][: len(rows)] = rows
    row["python_count"], row["python_depth"] = len(rows), len(rows) if depth is None else depth
    addresses = list(native)
    row["native"][: len(addresses)], row["native_count"] = addresses, len(addresses)
    row["python_state"], row["cut"] = state, cut
    return record


def code(
    address: int,
    name: str = "forward",
    file: str = "train.py",
    *,
    first_line: int = 10,
    table: bytes = b"",
    unit: int = 1,
    pid: int = 100,
    start_ns: int = 7,
    sign: int = 5,
    dtype: np.dtype[np.void] = layout.CODE,
) -> NDArray[np.void]:
    record = np.zeros(1, dtype)
    head = record[0]["head"]
    head["h"]["pid"], head["h"]["start_ns"], head["code"], head["sign"] = pid, start_ns, address, sign
    texts = [text.encode(ENCODINGS[unit], "surrogatepass") for text in (name, file)]
    head["name"]["unit"] = head["file"]["unit"] = unit
    head["name"]["bytes"], head["file"]["bytes"] = map(len, texts)
    head["first_line"], head["lines_bytes"], head["minor"] = first_line, len(table), 13
    data = b"".join(texts) + table
    record[0]["data"][: len(data)] = np.frombuffer(data, np.uint8)
    return record


def only(kept: StackBook, number: int = 1) -> tuple[Frame, ...]:
    (found,) = kept.resolve(np.array([number], np.uint64)).tolist()
    return next(each.frames for each in kept.take_new() if each.hash == found)


def functions(frames: Iterable[Frame]) -> list[str]:
    return [frame.function for frame in frames]


def too_long(address: int, missing: layout.Missing) -> NDArray[np.void]:
    record = code(address)
    record[0]["head"]["missing"] = missing
    return record


def test_code_without_its_lines_is_shown_without_one_until_it_is_read() -> None:
    kept = book()
    kept.add(stack(python=[(0xA, 4)]), too_long(0xA, layout.Missing.MISSING_LINES), NO_LONG_CODES)
    assert only(kept)[1] == Frame("python", "forward", "train.py", None)
    [(key, start_ns)] = kept.code.take_missing()
    kept.code.learn(key, Origin(start_ns, (3, 13)), "forward", "train.py", 10, b"")
    kept.add(stack(2, python=[(0xA, 4)]), NO_CODES, NO_LONG_CODES)
    assert only(kept, 2)[1] == Frame("python", "forward", "train.py", 14)


def test_a_stack_shows_name_file_and_the_line_executing() -> None:
    kept = book()
    kept.add(
        stack(python=[(0xA, 4), (0xB, 2 | ENTRY)]),
        np.concatenate([code(0xA), code(0xB, "main", first_line=50)]),
        NO_LONG_CODES,
    )
    assert only(kept) == (
        note("native frames not readable"),
        Frame("python", "forward", "train.py", 14),
        Frame("python", "main", "train.py", 52),
    )
    assert kept.counts["unknown_frames"] == 0
    assert kept.counts["python_read"] == 1


def test_the_line_table_and_version_arrive_whole() -> None:
    asked = []
    kept = StackBook(frames_at, lambda *each: asked.append(each))
    kept.add(stack(python=[(0xA, 4 | ENTRY)]), code(0xA, table=b"\x01\x00\xff"), NO_LONG_CODES)
    assert only(kept)[1] == Frame("python", "forward", "train.py", None)
    assert asked == [((3, 13), b"\x01\x00\xff", 10, 4)]


def test_ids_of_many_calls_become_hashes_and_each_stack_is_handed_out_once() -> None:
    kept = book()
    kept.add(np.concatenate([stack(1, [(0xA, 1)]), stack(2, [(0xA, 2)])]), code(0xA), NO_LONG_CODES)
    ids = np.array([2, 0, 1, 1, 2, 99], np.uint64)
    hashes = kept.resolve(ids)
    assert hashes.dtype == np.int64
    assert hashes[0] == hashes[4] > 0
    assert hashes[2] == hashes[3] > 0
    assert hashes[0] != hashes[2]
    assert hashes[1] == hashes[5] == 0
    assert kept.counts["stacks_lost"] == 1
    assert {each.hash for each in kept.take_new()} == set(hashes.tolist()) - {0}
    assert kept.resolve(ids).tolist() == hashes.tolist()
    assert kept.take_new() == []
    assert kept.resolve(np.zeros(0, np.uint64)).tolist() == []


def test_the_same_code_in_two_processes_has_one_hash() -> None:
    kept = book()
    kept.add(
        np.concatenate([stack(1, [(0xA, 4)], pid=100), stack(2, [(0xFF, 4)], pid=200)]),
        np.concatenate([code(0xA, pid=100), code(0xFF, pid=200)]),
        NO_LONG_CODES,
    )
    one, two = kept.resolve(np.array([1, 2], np.uint64)).tolist()
    assert one == two
    assert len(kept.take_new()) == 1


def test_a_hash_is_positive_and_the_same_in_every_run() -> None:
    found = resolved([Frame("python", "f", "x.py", 1), note("5 frames cut")])
    assert found.hash == 569211940998096927
    assert 0 < found.hash < 1 << 63
    assert resolved([Frame("python", "f", "x.py", 2), note("5 frames cut")]).hash != found.hash
    assert resolved([Frame("python", "f", None, 1)]).hash != resolved([Frame("python", "f", "", 1)]).hash


def test_a_code_object_that_never_came_is_unknown_and_counted() -> None:
    kept = book()
    kept.add(stack(python=[(0xA, 4), (0xB, ENTRY)]), code(0xB), NO_LONG_CODES)
    assert functions(only(kept))[1:] == ["[unknown]", "forward"]
    assert kept.counts["unknown_frames"] == 1


@pytest.mark.parametrize("other", [{"sign": 6}, {"pid": 101}, {"start_ns": 8}], ids=str)
def test_another_object_at_the_same_address_is_not_taken_for_it(other: dict[str, int]) -> None:
    kept = book()
    kept.add(stack(python=[(0xA, 4)]), code(0xA, **other), NO_LONG_CODES)
    assert functions(only(kept))[1:] == ["[unknown]"]


def test_an_object_whose_process_start_is_not_told_is_taken() -> None:
    kept = book()
    kept.add(stack(python=[(0xA, 4)]), code(0xA, start_ns=0), NO_LONG_CODES)
    assert functions(only(kept))[1:] == ["forward"]


def test_code_that_comes_later_heals_the_stack() -> None:
    kept = book()
    kept.add(stack(python=[(0xA, 4)]), NO_CODES, NO_LONG_CODES)
    assert functions(only(kept))[1:] == ["[unknown]"]
    kept.add(NO_STACKS, code(0xA), NO_LONG_CODES)
    assert functions(only(kept))[1:] == ["forward"]
    assert not kept._waiting


def test_code_too_long_for_a_record_is_asked_for_once_and_can_be_told() -> None:
    kept = book()
    kept.add(stack(python=[(0xA, 4)]), too_long(0xA, layout.Missing.MISSING_TEXTS), NO_LONG_CODES)
    assert functions(only(kept))[1:] == ["[unknown]"]
    ((key, start_ns),) = kept.code.take_missing()
    assert (key, start_ns) == ((100, 0xA, 5), 7)
    assert not list(kept.code.take_missing())
    kept.code.learn(key, Origin(start_ns, (3, 13)), "long" * 5000, "x.py", 1, b"")
    kept.retry()
    assert functions(only(kept))[1:] == ["long" * 5000]


def test_code_that_was_not_copied_is_asked_for_unless_it_is_known() -> None:
    kept = book()
    walked = stack(python=[(0xA, 4), (0xB, 4)])
    walked["uncopied"] = 1
    kept.add(walked, code(0xB, "main"), NO_LONG_CODES)
    ((key, start_ns),) = kept.code.take_missing()
    assert (key, start_ns) == ((100, 0xA, 5), 7)
    kept.code.learn(key, Origin(start_ns, (3, 9)), "forward", "x.py", 1, b"")
    assert functions(only(kept))[1:] == ["forward", "main"]


def test_code_whose_record_was_lost_is_not_asked_for() -> None:
    """It comes again."""
    kept = book()
    kept.add(stack(python=[(0xA, 4)]), NO_CODES, NO_LONG_CODES)
    assert not list(kept.code.take_missing())


@pytest.mark.parametrize("unit, name", [(1, "café"), (2, "训练"), (4, "𝒇.𝒈"), (2, "a\udc80b")])
def test_texts_of_every_width_are_read(unit: int, name: str) -> None:
    kept = book()
    kept.add(stack(python=[(0xA, 4)]), code(0xA, name, f"/data/{name}.py", unit=unit), NO_LONG_CODES)
    shown = name.replace("\udc80", "\ufffd")
    assert only(kept)[1][1:3] == (shown, f"/data/{shown}.py")


def test_long_paths_stay_whole_and_control_characters_do_not() -> None:
    kept, path = book(), "/" + "deep/" * 800 + "train.py"
    kept.add(stack(python=[(0xA, 4)]), NO_CODES, code(0xA, "f\x1b[31m\n", path, dtype=layout.CODE_LONG))
    assert only(kept)[1][1:3] == ("f\ufffd[31m\ufffd", path)


@pytest.mark.parametrize("depth", [129, 140, 160, 161, 440])
def test_frames_cut_out_of_the_middle_are_counted_and_the_outer_ones_turned_back(depth: int) -> None:
    places = list(range(96)) + [0] * 32
    for each in range(96, depth):  # as the kernel writes them
        places[96 + (each - 96) % 32] = each
    kept = book()
    kept.add(stack(python=[(0xA, at) for at in places], depth=depth), code(0xA, first_line=0), NO_LONG_CODES)
    frames = only(kept)[1:]
    assert frames[96] == note(f"{depth - 128} frames cut")
    lines = [frame.line for frame in frames if frame.kind == "python"]
    assert lines == [*range(96), *range(depth - 32, depth)]
    assert kept.counts["stacks_cut"] == 1


def test_what_could_not_be_read_is_said() -> None:
    kept = book()
    kept.add(
        np.concatenate(
            [
                stack(1, [(0xA, 4)], state=PythonState.PYTHON_UNREADABLE, cut=1),
                stack(2, state=PythonState.PYTHON_CORRUPT, native=[5]),
                stack(3, [(0xA, 4)], cut=1),
                stack(4, state=PythonState.PYTHON_NO_THREAD, native=[5]),
                stack(5, state=PythonState.PYTHON_NONE, native=[5]),
                stack(6, state=200, native=[5]),
            ]
        ),
        code(0xA),
        NO_LONG_CODES,
    )
    assert functions(only(kept, 1))[1:] == ["forward", "[Python frames not readable from here on]"]
    assert functions(only(kept, 2))[2:] == ["[Python frames not readable: no chain of frames]"]
    assert functions(only(kept, 3))[1:] == ["forward", "[deeper frames not read]"]
    assert functions(only(kept, 4)) == ["at5", "[native frames not readable: libx.so]"]
    kept.resolve(np.array([5, 6], np.uint64))
    states = {name: count for name, count in kept.counts.items() if name.startswith("python_")}
    assert states == dict.fromkeys(
        [
            "python_unreadable",
            "python_corrupt",
            "python_read",
            "python_no_thread",
            "python_none",
            "python_other",
        ],
        1,
    )


def test_native_addresses_are_looked_up_at_the_call_and_end_where_there_is_no_code() -> None:
    kept = book()
    kept.add(stack(native=[10, 20, 5000, 30]), NO_CODES, NO_LONG_CODES)
    assert functions(only(kept)) == ["at10", "at19", "[native frames not readable: libx.so]"]


def test_each_process_is_asked_for_its_own_addresses_at_once() -> None:
    asked = []

    def note_asked(pid: int, addresses: NDArray[np.uint64], start_ns: int) -> list[NativeFrame | None]:
        asked.append((pid, start_ns, addresses.tolist()))
        return frames_at(pid, addresses, start_ns)

    kept = StackBook(note_asked, line_at)
    made = [stack(1, native=[10, 20]), stack(2, native=[10, 30]), stack(3, native=[40], pid=200, start_ns=9)]
    kept.add(np.concatenate(made), NO_CODES, NO_LONG_CODES)
    assert asked == [(100, 7, [10, 19, 29]), (200, 9, [40])]
    kept.resolve(np.array([1, 2, 3], np.uint64))
    kept.add(np.concatenate(made), NO_CODES, NO_LONG_CODES)  # sent again after a while
    assert len(asked) == 2


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MAX_WAITING", 10)
    monkeypatch.setattr(stacks, "MAX_KNOWN", 20)
    monkeypatch.setattr(stacks, "MAX_SHOWN", 15)
    kept = book()
    for number in range(1, 60):
        kept.add(stack(number, [(number, 4)]), code(number, f"f{number}"), NO_LONG_CODES)
        if number % 2:
            kept.resolve(np.array([number], np.uint64))
    assert len(kept._waiting) <= 10
    assert len(kept._known) <= 20
    assert len(kept._shown) <= 15
    objects = code_objects.CodeObjects(max_bytes=20_000)
    for number in range(200):
        objects.add(code(number, table=b"x" * 400))
    assert 0 < len(objects) <= 20
    assert objects._bytes == sum(each.bytes for each in objects._held.values())


def test_of_processes_that_ended_nothing_is_kept() -> None:
    kept = book()
    for pid in range(100, 400):
        number = pid * 10
        kept.add(stack(number, [(0xA, 4)], pid=pid), code(0xA, pid=pid), NO_LONG_CODES)
        kept.add(stack(number + 1, [(0xB, 4)], pid=pid), NO_CODES, NO_LONG_CODES)  # never asked for
        kept.add(stack(number + 2, [(0xC, 4)], pid=pid), NO_CODES, NO_LONG_CODES)  # its code never comes
        kept.code.want([CodeKey(pid, 0xD, 5)], 7)
        kept.resolve(np.array([number, number + 2], np.uint64))
        kept.forget({pid})
    assert (len(kept._waiting), len(kept._known), len(kept._incomplete), len(kept.code)) == (0, 0, 0, 0)
    assert kept.code._bytes == 0
    assert list(kept.code.take_missing()) == []


def test_of_a_process_that_runs_everything_is_kept_when_others_end() -> None:
    kept = book()
    kept.add(stack(1, [(0xA, 4)], pid=100), code(0xA, "stays", pid=100), NO_LONG_CODES)
    kept.add(stack(2, [(0xA, 4)], pid=101), code(0xA, "ends", pid=101), NO_LONG_CODES)
    kept.forget({101})
    assert functions(only(kept))[-1] == "stays"
    assert kept.resolve(np.array([2], np.uint64)).tolist() == [0]
    assert kept.counts["stacks_lost"] == 1


def random_records(dtype: np.dtype[np.void]) -> st.SearchStrategy[NDArray[np.void]]:
    """Any bytes at the head of each record, and what follows filled from a seed."""

    def fill(heads: list[bytes], seed: int) -> NDArray[np.void]:
        raw = np.random.default_rng(seed).integers(0, 256, (len(heads), dtype.itemsize), np.uint8)
        for row, head in zip(raw, heads, strict=True):
            row[: len(head)] = np.frombuffer(head, np.uint8)
        return raw.reshape(-1).view(dtype)

    return st.builds(fill, st.lists(st.binary(max_size=96), max_size=4), st.integers(0, 2**32))


@settings(max_examples=80, deadline=None)
@given(random_records(layout.STACK), random_records(layout.CODE), random_records(layout.CODE_LONG))
def test_any_bytes_in_records_are_survived(
    made: NDArray[np.void], codes: NDArray[np.void], long_codes: NDArray[np.void]
) -> None:
    kept = book()
    kept.add(made, codes, long_codes)
    hashes = kept.resolve(made["id"].copy())
    assert (hashes[made["id"] != 0] > 0).all()
    for each in kept.take_new():
        assert len(each.frames) <= 128 + 64 + 3
        for frame in each.frames:
            assert frame.function.encode()


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 5), st.integers(0, 5),
    st.binary(max_size=896),
)  # fmt: skip
def test_any_lengths_in_a_code_record_give_texts_or_nothing(
    name: int, file: int, lines: int, name_unit: int, file_unit: int, data: bytes
) -> None:
    record = code(0xA, "", "")
    head = record[0]["head"]
    head["name"]["bytes"], head["name"]["unit"] = name, name_unit
    head["file"]["bytes"], head["file"]["unit"] = file, file_unit
    head["lines_bytes"] = lines
    record[0]["data"][: len(data)] = np.frombuffer(data, np.uint8)
    kept = book()
    kept.add(stack(python=[(0xA, 4)]), record, NO_LONG_CODES)
    whole = name + file + lines <= layout.CODE["data"].shape[0] and {name_unit, file_unit} <= {1, 2, 4}
    assert (only(kept)[1].function == "[unknown]") <= (not whole or data[:9] == b"[unknown]")
    assert kept.counts["unknown_frames"] == (0 if whole else 1)
