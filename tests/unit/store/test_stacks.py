"""Stacks, samples and the lines behind calls and waits: stored once, read back, dropped when uncited."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingero.model.layout import SampleFlag, Why
from ingero.model.stack import Frame, ResolvedStack
from ingero.model.window import Window
from ingero.store import guard
from ingero.store.reader import Reader
from ingero.store.sites import MOST_ROWS, SiteReader, _spread
from ingero.store.stack_rows import StackRows, drop_uncited, drop_unused_frames
from ingero.store.writer import Writer
from ingero.units import MINUTE
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, call, fixed_clock, sample, wait, window
from tests.sites import resolved

Ask = Callable[..., list[dict[str, Any]]]
FORWARD, LOAD = resolved("forward /srv/train.py:142", 11), resolved("load /srv/loader.py:7", 12)


def hashes(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def calls_from(*stacks: int, **more: Any) -> Window:
    made = [call("cudaMalloc", took_ns=1000, bytes=64, at_ns=n, **more) for n in range(len(stacks))]
    return window(calls=made, call_stacks=hashes(*stacks), stacks=[FORWARD, LOAD])


def test_calls_and_waits_say_where_they_come_from(ask: Ask) -> None:
    made = window(
        calls=[call(), call(at_ns=5)],
        call_stacks=hashes(11, 0),
        waits=[wait("disk_wait")],
        wait_stacks=hashes(12),
        stacks=[FORWARD, LOAD],
    )
    rows = ask("SELECT op, stack_hash FROM events ORDER BY id", made)
    assert [row["stack_hash"] for row in rows] == [11, None, 12]


def test_a_window_without_stacks_has_none(ask: Ask) -> None:
    rows = ask("SELECT stack_hash FROM events", window(calls=[call()], waits=[wait()]))
    assert [row["stack_hash"] for row in rows] == [None, None]


def test_hashes_stay_with_their_calls_when_an_unknown_operation_is_dropped(ask: Ask) -> None:
    alien = call()
    alien["op"] = 9999
    made = window(calls=[call(), alien, call("cudaFree")], call_stacks=hashes(11, 99, 12))
    rows = ask("SELECT op, stack_hash FROM events ORDER BY id", made)
    assert [(row["op"], row["stack_hash"]) for row in rows] == [("cudaLaunchKernel", 11), ("cudaFree", 12)]


def test_frames_come_back_as_they_were_told(ask: Ask) -> None:
    rows = ask("SELECT * FROM stacks WHERE stack_hash = 11 ORDER BY depth", window(stacks=[FORWARD]))
    assert [tuple(row.values())[2:] for row in rows] == [
        (each.kind, each.function, each.file, each.line, each.module) for each in FORWARD.frames
    ]
    assert [row["depth"] for row in rows] == [0, 1, 2, 3]


def test_a_stack_reads_as_a_line_of_text(ask: Ask) -> None:
    note = Frame("note", "[native frames not readable: libtorch]", None, None, None)
    stack = ResolvedStack(5, (note, *FORWARD.frames))
    (row,) = ask("SELECT text FROM stack_text WHERE stack_hash = 5", window(stacks=[stack]))
    assert row["text"] == (
        "[native frames not readable: libtorch] < cudaLaunchKernel in libcudart.so.12"
        " < Module._call_impl() at module.py:1750 < forward() at train.py:142 < main() at train.py:1"
    )


def test_texts_and_frames_are_kept_once(path: Path, stored: Callable[..., Reader]) -> None:
    many = [resolved(f"forward /srv/train.py:{line}", line) for line in range(1, 51)]
    stored(window(stacks=many), window(SECOND, stacks=many))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT COUNT(*) FROM stack").fetchone() == (50,)
        assert connection.execute("SELECT COUNT(*) FROM frame").fetchone() == (50 + 3,)
        assert connection.execute(
            "SELECT COUNT(*) FROM frame_text WHERE text = '/srv/train.py'"
        ).fetchone() == (1,)


def test_a_stack_told_again_replaces_what_was_known(ask: Ask) -> None:
    poor = ResolvedStack(11, (Frame("native", "?", None, None, None),))
    rows = ask("SELECT function FROM stacks", window(stacks=[poor]), window(SECOND, stacks=[FORWARD]))
    assert [row["function"] for row in rows][2] == "forward"


def test_text_of_the_traced_process_is_cleaned_and_capped(ask: Ask) -> None:
    evil = Frame("python", "a\x1b[2J\nb", "x" * 10_000, 2**40, None)
    (row,) = ask("SELECT * FROM stacks", window(stacks=[ResolvedStack(1, (evil,))]))
    assert "\x1b" not in row["function"]
    assert len(row["file"]) == 500
    assert row["line"] is None


def test_samples_are_counted_with_their_state(ask: Ask) -> None:
    flags = int(SampleFlag.SAMPLE_COLLECTING | SampleFlag.SAMPLE_KERNEL)
    made = window(samples=[sample(11, 7, flags=flags), sample(0, 2, op="cudaMemcpy", bucket="cuda_cpu")])
    one, two = ask("SELECT * FROM samples ORDER BY stack_hash DESC", made)
    assert one == {
        "node": "gpu-node-01", "pid": 100, "tid": 100, "bucket_start_ns": EPOCH_NS, "stack_hash": 11,
        "bucket": "host_cpu", "op": None, "collecting": 1, "gil": 0, "kernel": 1, "count": 7,
    }  # fmt: skip
    assert (two["stack_hash"], two["op"], two["bucket"], two["count"]) == (None, "cudaMemcpy", "cuda_cpu", 2)


def test_users_can_ask_for_stacks_in_sql(stored: Callable[..., Reader]) -> None:
    with stored(calls_from(11, 12, 11)) as reader:
        sql = "SELECT t.text, SUM(c.weight) FROM calls c JOIN stack_text t USING (stack_hash) GROUP BY 1"
        rows = guard.run(reader.connection, sql).rows
        assert {text.split(" < ")[2]: count for text, count in rows} == {
            "forward() at train.py:142": 2,
            "load() at loader.py:7": 1,
        }
        sql = "SELECT COUNT(*) FROM stacks WHERE function = 'forward'"
        assert guard.run(reader.connection, sql).rows == [(1,)]


# --- reading sums -----------------------------------------------------------------------


def sites(reader: Reader) -> SiteReader:
    return SiteReader(reader.connection, 1)


def test_a_call_that_failed_has_no_bytes_of_a_line(stored: Callable[..., Reader]) -> None:
    failed = call("cudaMalloc", bytes=1 << 40, ret=2, why=int(Why.WHY_ERROR))
    made = window(calls=[call("cudaMalloc", bytes=100), failed], call_stacks=hashes(11, 11))
    with stored(made) as reader:
        (row,) = sites(reader).calls(100, EPOCH_NS, EPOCH_NS + SECOND)
        assert (row["count"], row["bytes"]) == (2, 100)


def test_calls_are_summed_by_stack_with_what_they_stand_for(stored: Callable[..., Reader]) -> None:
    made = window(
        calls=[
            call(took_ns=10, weight=40),
            call(took_ns=20, weight=2),
            call(took_ns=5, nested=True),
            call(took_ns=7, pid=200),
        ],
        call_stacks=hashes(11, 11, 12, 12),
        waits=[wait(took_ns=9)],
    )
    with stored(made) as reader:
        (row,) = sites(reader).calls(100, EPOCH_NS, EPOCH_NS + SECOND)
        assert (row["stack"], row["count"], row["ns"]) == (11, 42, 440)
        assert len(sites(reader).calls(None, EPOCH_NS, EPOCH_NS + SECOND)) == 2
        assert len(sites(reader).calls(100, EPOCH_NS + SECOND, EPOCH_NS + 2 * SECOND)) == 0


def test_waits_are_summed_without_what_was_waiting_for_a_core(stored: Callable[..., Reader]) -> None:
    made = window(
        waits=[
            wait("lock_wait", 5_000_000, runqueue_ns=1_000_000, gil=2, holder_tid=101),
            wait("runqueue", 2_000_000, runqueue_ns=2_000_000, op="cudaStreamSynchronize"),
        ],
        wait_stacks=hashes(11, 12),
    )
    with stored(made) as reader:
        lock, core = np.sort(sites(reader).waits(100, EPOCH_NS, EPOCH_NS + SECOND), order="stack")
        assert (lock["ns"], lock["gil"], lock["holder_tid"], lock["stack"]) == (4_000_000, 1, 101, 11)
        assert (core["ns"], core["gil"], core["holder_tid"]) == (2_000_000, 0, 0)
        assert core["op"] > 0


def test_samples_are_summed_over_seconds(stored: Callable[..., Reader]) -> None:
    made = [window(n * SECOND, samples=[sample(11, 3), sample(12, 1, pid=200)]) for n in range(3)]
    with stored(*made) as reader:
        (row,) = sites(reader).samples(100, EPOCH_NS + SECOND, EPOCH_NS + 3 * SECOND)
        assert (row["stack"], row["count"]) == (11, 6)
        by_second = sites(reader).samples_by_second(100, EPOCH_NS, EPOCH_NS + 3 * SECOND)
        assert by_second["start_ns"].tolist() == [EPOCH_NS + n * SECOND for n in range(3)]


def test_memory_is_kept_until_its_address_is_freed(stored: Callable[..., Reader]) -> None:
    made = window(
        calls=[
            call("cudaMalloc", bytes=64, out=0x1000, at_ns=1),
            call("cudaMalloc", bytes=32, out=0x2000, at_ns=2),
            call("cudaFree", args=[0x1000], at_ns=3),
            call("cudaMalloc", bytes=16, out=0x3000, at_ns=4, ret=2),  # failed
            call("cudaFree", args=[0x4000], at_ns=5),
            call("cudaMalloc", bytes=8, out=0x4000, at_ns=6),  # the same address again
            call("cudaMalloc", bytes=4, out=0x5000, at_ns=7, pid=200),
        ],
        call_stacks=hashes(11, 12, 0, 11, 0, 12, 11),
    )
    with stored(made) as reader:
        (row,) = sites(reader).kept(100, EPOCH_NS, EPOCH_NS + SECOND)
        assert (row["stack"], row["count"], row["bytes"]) == (12, 2, 40)


def test_one_events_stack_and_the_last_call_of_a_kind(stored: Callable[..., Reader]) -> None:
    with stored(calls_from(11, 12)) as reader:
        (op,) = reader.rows("SELECT id FROM op WHERE name = 'cudaMalloc'")[0]
        first = reader.rows("SELECT id FROM events ORDER BY timestamp LIMIT 1")[0][0]
        assert sites(reader).of_event(first) == 11
        assert sites(reader).of_event("gpu-node-01:nonsense") == 0
        assert sites(reader).last_call(100, [op], EPOCH_NS + SECOND) == 12
        assert sites(reader).last_call(100, [], EPOCH_NS + SECOND) == 0
        assert sites(reader).last_call(200, [op], EPOCH_NS + SECOND) == 0


def test_frames_are_read_for_the_stacks_asked_for(stored: Callable[..., Reader]) -> None:
    with stored(calls_from(11)) as reader:
        assert sites(reader).stacks([11, 77]) == {11: FORWARD.frames}


@pytest.mark.parametrize("frames", ["[1, 2", '{"a": 1}', '["x", null]', "", "[99999]"])
def test_a_broken_stack_has_no_frames(stored: Callable[..., Reader], path: Path, frames: str) -> None:
    stored(calls_from(11)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE stack SET frames = ? WHERE hash = 11", (frames,))
    with Reader(path) as reader:
        assert sites(reader).stacks([11]) == {11: ()}


def test_a_long_stretch_is_read_in_evenly_spread_parts() -> None:
    assert list(_spread(5, 4)) == []
    assert list(_spread(5, 10)) == [(5, 10)]
    parts = list(_spread(1, 10 * MOST_ROWS))
    assert sum(last - first + 1 for first, last in parts) == MOST_ROWS
    assert (parts[0][0], parts[-1][1]) == (1, 10 * MOST_ROWS)
    assert all(before[1] < after[0] for before, after in pairwise(parts))


def test_sums_of_a_part_are_scaled_to_the_whole(
    stored: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [call(at_ns=n, took_ns=10) for n in range(1000)]
    with stored(window(calls=made, call_stacks=np.full(1000, 11, np.int64))) as reader:
        monkeypatch.setattr("ingero.store.sites.MOST_ROWS", 100)
        rows = sites(reader).calls(100, EPOCH_NS, EPOCH_NS + SECOND)
        assert (rows["count"].sum(), rows["ns"].sum()) == pytest.approx((1000, 10_000), rel=0.02)


# --- keeping and dropping -----------------------------------------------------------------


def connection_with(path: Path, *windows: Window) -> sqlite3.Connection:
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        for each in windows:
            assert writer.write(each) == ""
    return sqlite3.connect(path, isolation_level=None)


def test_a_stack_goes_once_everything_that_could_cite_it_is_gone(path: Path) -> None:
    hour = 3600 * SECOND
    late = window(hour, calls=[call(at_ns=hour)], call_stacks=hashes(12))
    connection = connection_with(path, calls_from(11), late)
    assert drop_uncited(connection, 100) == 0  # the event of the first window is still there
    connection.execute("DELETE FROM event WHERE ts_ns < ?", (EPOCH_NS + SECOND,))
    assert drop_uncited(connection, 100) == 1
    assert connection.execute("SELECT hash FROM stack").fetchall() == [(12,)]  # cited an hour later
    assert drop_unused_frames(connection) == 1
    texts = {text for (text,) in connection.execute("SELECT text FROM frame_text")}
    assert "load" in texts
    assert "forward" not in texts


def test_samples_keep_their_stacks(path: Path) -> None:
    hour = 3600 * SECOND
    connection = connection_with(
        path, window(samples=[sample(11, 3)], stacks=[FORWARD]), window(hour, calls=[call(at_ns=hour)])
    )
    assert drop_uncited(connection, 100) == 0
    connection.execute("DELETE FROM thread_sample")
    assert drop_uncited(connection, 100) == 1


def test_a_frame_that_was_deleted_is_stored_again(path: Path) -> None:
    connection = connection_with(path)
    rows = StackRows(connection)
    rows.save([FORWARD], 1)
    connection.execute("DELETE FROM stack")
    drop_unused_frames(connection)
    rows.forget()
    rows.save([FORWARD], 2)
    assert SiteReader(connection, 1).stacks([11]) == {11: FORWARD.frames}


def test_a_small_limit_drops_stacks_with_the_detail(path: Path) -> None:
    """Each window has stacks of its own; the file stays small and cites only what it has."""
    with Writer(path, "n", fixed_clock(), OPERATIONS, max_bytes=2 << 20) as writer:
        for number in range(80):
            at_ns = number * 20 * SECOND
            own = [resolved(f"f{number} /srv/{number}.py:{n}", number * 100 + n + 1) for n in range(40)]
            calls = np.repeat(call(at_ns=at_ns), 400)
            cited = np.array([own[n % 40].hash for n in range(400)], np.int64)
            assert writer.write(window(at_ns, calls=calls, call_stacks=cited, stacks=own)) == ""
    with Reader(path) as reader:
        (kept,) = reader.rows("SELECT COUNT(*) FROM stack")[0]
        assert 0 < kept < 80 * 40
        missing = reader.rows(
            "SELECT COUNT(*) FROM event e WHERE e.stack_hash NOT IN (SELECT hash FROM stack)"
        )
        assert missing == [(0,)]
        assert reader.rows("SELECT COUNT(*) FROM stacks WHERE kind IS NULL") == [(0,)]


def test_stacks_of_a_window_that_was_given_up_are_stored_with_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingero.store.writer.BACKLOG_WINDOWS", 0)
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        assert writer.write(calls_from(11)) != ""
        blocker.execute("ROLLBACK")
        blocker.close()
        assert writer.write(window(SECOND, calls=[call(at_ns=SECOND)], call_stacks=hashes(11))) == ""
    with Reader(path) as reader:
        assert reader.rows("SELECT COUNT(*) FROM stack WHERE hash = 11") == [(1,)]


def test_what_is_remembered_of_stacks_has_a_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero.store.stack_rows.REMEMBERED", 10)
    connection = connection_with(path)
    rows = StackRows(connection)
    for number in range(1, 100):
        rows.save([resolved(f"f{number} /srv/{number}.py:1", number)], 1)
        rows.cite([hashes(number)], 2 * MINUTE)
    assert max(map(len, (rows._texts, rows._frames, rows._cited))) <= 12
    found = SiteReader(connection, 1).stacks([1, 99])
    assert {number: resolved(f"f{number} /srv/{number}.py:1", number).frames for number in (1, 99)} == found
