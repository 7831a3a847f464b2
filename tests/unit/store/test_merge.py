"""Merging keeps every row, once, and changes no source."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ingero.errors import StoreError
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.operations import KernelName
from ingero.model.stack import Frame, ResolvedStack
from ingero.model.window import Annotation, Container, GovernorAction, PodEvent, SystemSample, Unwatchable
from ingero.store.findings import FindingRow
from ingero.store.merge.clocks import clock_notes
from ingero.store.merge.result import merge
from ingero.store.merge.rules import PLAIN_IDS, PLAIN_TABLES, REFERENCES, SPECIAL_TABLES
from ingero.store.reader import Reader
from ingero.store.recording import connect
from ingero.store.sites import SiteReader
from ingero.store.writer import Writer
from tests.builders import (
    EPOCH_NS,
    OPERATIONS,
    SECOND,
    FakeTime,
    block,
    call,
    culprit,
    in_flight,
    operation,
    process,
    retransmit,
    sample,
    thread,
    wait,
    waker,
    window,
    xid,
)
from tests.go_databases import VERSIONS, GoRecording
from tests.merging import differing_views, rows
from tests.sites import resolved

Make = Callable[..., Path]


def busy_window(start_ns: int, rank: int = 0, comm: str = "python"):
    """A second with a row in every table there is."""
    launch = call(at_ns=start_ns + 10, took_ns=50, comm=comm)
    launch["kernel"] = 1
    return window(
        start_ns,
        kernels={1: KernelName(f"void scale<4>({comm}*)")},
        stacks=[resolved("forward train.py:142", 11), resolved(f"step {comm}.py:7", 12 + len(comm))],
        call_stacks=np.array([11, 12 + len(comm), 0], np.int64),
        wait_stacks=np.array([11], np.int64),
        samples=[sample(11, 5), sample(0, 2, op="cudaMemcpy", flags=1)],
        calls=[
            launch,
            call("cudaMemcpy", at_ns=start_ns + 100, bytes=4096, args=(0, 0, 4096, 1), stream=7),
            call("ncclAllReduce", at_ns=start_ns + 300 + rank, bytes=64, args=(0, 0, 16, 7, 0),
                 comm_hash=99, seq=start_ns // SECOND, rank=rank, nranks=2),
        ],
        waits=[wait(at_ns=start_ns + 500, waker_kind=1, waker_pid=300, waker="pt_data_worker",
                    gil=1, holder_tid=101)],
        blocks=[block(at_ns=start_ns + 700)],
        tcp=[retransmit(at_ns=start_ns + 800, pid=100)],
        xids=[xid(at_ns=start_ns + 900)],
        operations=[operation(durations_ns=(50, 60)), operation("cudaMemcpy", bytes=4096)],
        threads=[thread(gpu_wait=SECOND // 2, host_cpu=SECOND // 2, comm=comm, estimated_ns=7)],
        overhead_share=0.015,
        switches=1000,
        switches_ns=400_000,
        watched_share=0.25,
        actions=[GovernorAction(start_ns, "launches", "all the time", "25 % of the time", "cost", 0.25)],
        culprits=[culprit()],
        wakers=[waker()],
        in_flight=[in_flight(since_ns=start_ns, now_ns=start_ns + SECOND)],
        processes=[process(rank=rank, world_size=2, cgroup_id=5, labels=(("job", "4711"), ("user", "ada")))],
        bystanders=[process(300, comm="pt_data_worker", target=False)],
        containers=[Container(5, "/kube/x", "0123456789ab", "containerd", "train-0", "ml", None,
                              (("name", "trainer"), ("owner", "Job/train")))],
        pod_events=[PodEvent(EPOCH_NS + start_ns, "train-0", "ml", "u-1", "trainer", "restart", "Error", 1)],
        losses={"ring_call": 3},
        not_watched=[Unwatchable(100, "gil", "free-threaded")],
        annotations=[Annotation(100, start_ns + 10, "step", str(start_ns // SECOND))],
        system=SystemSample(0.5, 0.25, 1 << 30, 1.5, 8, 0, 0.1, None, None),
        gpus=GpuNews(
            (GpuCard(0, "card", f"GPU-{start_ns}"),),
            (GpuSample(0, start_ns + 50, 0.5),),
            (GpuProcess(0, start_ns + 50, 300, "pt_data_worker", 4096, 0.25),),
        ),
    )  # fmt: skip


def finding(number: int, pid: int = 100) -> FindingRow:
    text = json.dumps({"id": "x", "causes": [{"evidence": [{"event_ids": ["a:1", "b:2"]}]}]})
    return FindingRow(
        f"{number}:cpu-contention:{pid}", "cpu-contention", "HIGH", "t", EPOCH_NS, EPOCH_NS, text
    )


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(
        name: str, node: str, *windows, at_s: int = 0, with_finding: bool = False, into: str = ""
    ) -> Path:
        path = tmp_path / (into or name)
        time = FakeTime()
        time.advance(at_s * SECOND)
        with Writer(path, node, time.clock(), OPERATIONS, cores=8) as writer:
            for each in windows or (busy_window(at_s * SECOND),):
                assert writer.write(each) == ""
            if with_finding:
                writer.save_findings([finding(writer.recording_id)])
        return path

    return made


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def ask(path: Path, sql: str) -> list[tuple]:
    with Reader(path) as reader:
        return reader.rows(sql)


def test_every_table_and_every_number_has_a_rule(tmp_path: Path) -> None:
    connection = connect(tmp_path / "new.db")
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == set(PLAIN_TABLES) | SPECIAL_TABLES | {"migration", "sqlite_sequence"} & tables
    for table in tables - {"migration"}:
        names = {row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        unknown = {name for name in names if re.search(r"_(id|hash)$", name)} - set(REFERENCES) - PLAIN_IDS
        assert unknown <= {"comm_hash"}, table
    connection.close()


def test_nodes_merged_are_the_sum_of_their_parts(make: Make, tmp_path: Path) -> None:
    parts = [make("a.db", "a", with_finding=True), make("b.db", "b", comm_window("x"), with_finding=True)]
    before = [digest(path) for path in parts]
    merge(parts, tmp_path / "out.db")
    assert differing_views(tmp_path / "out.db", parts) == []
    assert [digest(path) for path in parts] == before
    assert (tmp_path / "out.db").stat().st_mode & 0o777 == 0o600
    for table in (
        "thread_sample",
        "wait_detail",
        "not_watched",
        "system_sample",
        "in_flight",
        "clock_step",
        "io_second",
        "recording",
        "loss",
    ):
        counts = [ask(path, f"SELECT COUNT(*) FROM {table}")[0][0] for path in (*parts, tmp_path / "out.db")]
        assert counts[2] == counts[0] + counts[1], table


def comm_window(comm: str):
    return busy_window(0, comm=comm)


def test_every_table_of_the_test_has_rows(make: Make) -> None:
    path = make("a.db", "a", with_finding=True)
    empty = [table for table in PLAIN_TABLES if not ask(path, f"SELECT COUNT(*) FROM {table}")[0][0]]
    # Its clock was never set, and nobody compared it with another one.
    assert empty == ["clock_step", "clock_offset"]


def test_ids_name_their_node_and_stay(make: Make, tmp_path: Path) -> None:
    parts = [make("a.db", "a"), make("b.db", "b")]
    merge(parts, tmp_path / "out.db")
    ids = {row[0] for row in ask(tmp_path / "out.db", "SELECT id FROM events")}
    assert ids == {row[0] for path in parts for row in ask(path, "SELECT id FROM events")}
    assert {each.split(":")[0] for each in ids} == {"a", "b"}


def test_the_same_file_twice_counts_once(make: Make, tmp_path: Path) -> None:
    path = make("a.db", "a", with_finding=True)
    copy = tmp_path / "copy.db"
    copy.write_bytes(path.read_bytes())
    found = merge([path, path, copy], tmp_path / "out.db")
    assert differing_views(tmp_path / "out.db", [path]) == []
    assert [part.path for part in found.known] == [copy]


def test_merging_again_changes_nothing(make: Make, tmp_path: Path) -> None:
    parts = [make("a.db", "a"), make("b.db", "b")]
    out = tmp_path / "out.db"
    assert merge(parts, out).changed
    before = (digest(out), out.stat().st_ino, out.stat().st_mtime_ns)
    assert not merge(parts, out).changed
    assert not merge(parts[:1], out).changed
    assert (digest(out), out.stat().st_ino, out.stat().st_mtime_ns) == before


def test_a_later_merge_adds_to_an_earlier_result(make: Make, tmp_path: Path) -> None:
    a, b, out = make("a.db", "a"), make("b.db", "b"), tmp_path / "out.db"
    merge([a], out)
    merge([b], out)
    assert differing_views(out, [a, b]) == []
    merge([out], tmp_path / "again.db")
    assert differing_views(tmp_path / "again.db", [a, b]) == []


def test_a_recording_that_went_on_is_taken_anew(make: Make, tmp_path: Path) -> None:
    a, b, out = make("a.db", "a"), make("b.db", "b"), tmp_path / "out.db"
    merge([a, b], out)
    make("", "a", at_s=100, into="a.db")  # a second recording in the same file
    assert merge([a], out).changed
    assert differing_views(out, [a, b]) == []
    assert not merge([b, a], out).changed


def test_an_older_copy_adds_nothing(make: Make, tmp_path: Path) -> None:
    a, old = make("a.db", "a"), tmp_path / "old.db"
    old.write_bytes(a.read_bytes())
    make("", "a", at_s=100, into="a.db")
    for order in ([old, a], [a, old]):
        out = tmp_path / f"{order[0].stem}-first.db"
        merge(order, out)
        assert differing_views(out, [a]) == []


def test_two_recordings_of_one_node_both_survive(make: Make, tmp_path: Path) -> None:
    first = make("first.db", "a", with_finding=True)
    later = make("later.db", "a", at_s=3600, with_finding=True)
    out = tmp_path / "out.db"
    merge([later, first], out)
    assert ask(out, "SELECT COUNT(*) FROM recording") == [(2,)]
    for view in ("events", "operations", "thread_time", "losses", "findings", "wakers", "culprits"):
        there = [sum(rows(path, view).values()) for path in (out, first, later)]
        assert there[0] == there[1] + there[2], view
        assert min(there) > 0, view
    ids = [row[0] for row in ask(out, "SELECT id FROM events")]
    assert len(ids) == len(set(ids))
    assert {row[0] for row in ask(first, "SELECT id FROM events")} <= set(ids)  # the earlier keeps its own
    calls = "SELECT timestamp, op, duration, arg0 FROM events ORDER BY 1, 2"
    assert ask(out, calls) == ask(first, calls) + ask(later, calls)


def test_a_process_recorded_twice_is_one_process(make: Make, tmp_path: Path) -> None:
    make("a.db", "a")
    make("b.db", "a", at_s=10)
    merge([tmp_path / "a.db", tmp_path / "b.db"], tmp_path / "out.db")
    assert ask(tmp_path / "out.db", "SELECT pid, comm FROM processes") == [(100, "python")]
    sums = "SELECT SUM(count), SUM(sum_ns) FROM operation_minute"
    parts = [ask(tmp_path / name, sums)[0] for name in ("a.db", "b.db")]
    assert ask(tmp_path / "out.db", sums) == [tuple(map(sum, zip(*parts, strict=True)))]
    assert ask(tmp_path / "out.db", "SELECT COUNT(*) FROM operation_minute") == [(2,)]  # both in one minute


def test_minutes_equal_the_seconds_they_hold(make: Make, tmp_path: Path) -> None:
    windows = [busy_window(at * SECOND) for at in range(0, 130, 10)]
    parts = [make("a.db", "a", *windows), make("b.db", "b", *windows)]
    merge(parts, tmp_path / "out.db")
    sums = "SELECT node_id, op_id, SUM(count), SUM(sum_ns), SUM(bytes) FROM {} GROUP BY 1, 2 ORDER BY 1, 2"
    seconds, minutes = (
        ask(tmp_path / "out.db", sums.format(f"operation_{unit}")) for unit in ("second", "minute")
    )
    assert seconds == minutes
    assert seconds


def test_moved_findings_name_the_moved_events(make: Make, tmp_path: Path) -> None:
    first, later = make("first.db", "a"), make("later.db", "a", at_s=3600, with_finding=True)
    moved = ask(first, "SELECT next_seq - 1 FROM node")[0][0]
    merge([first, later], tmp_path / "out.db")
    ((text, key),) = ask(tmp_path / "out.db", "SELECT json, key FROM finding")
    assert json.loads(text)["causes"][0]["evidence"][0]["event_ids"] == [f"a:{1 + moved}", "b:2"]
    assert key == "2:cpu-contention:100"


def test_what_recordings_say_of_themselves_stays_theirs(make: Make, tmp_path: Path) -> None:
    a, b = make("a.db", "a"), make("b.db", "b")
    for path, what in ((a, "of a"), (b, "of b")):
        connection = sqlite3.connect(path)
        connection.execute("INSERT INTO meta VALUES ('not_watched:1', ?)", (what,))
        connection.commit()
        connection.close()
    merge([a, b], tmp_path / "out.db")
    found = "SELECT n.name, m.value FROM recording r JOIN node n ON n.id = r.node_id JOIN meta m"
    assert ask(tmp_path / "out.db", f"{found} ON m.key = 'not_watched:' || r.id ORDER BY 1") == [
        ("a", "of a"),
        ("b", "of b"),
    ]


def test_ranks_on_two_nodes_wait_for_each_other_only_once_merged(make: Make, tmp_path: Path) -> None:
    a = make("a.db", "a", busy_window(0, rank=0))
    b = make("b.db", "b", busy_window(0, rank=1))
    waits = "SELECT node, wait_ns FROM nccl_events ORDER BY node"
    assert ask(a, waits) == [("a", None)]
    out = tmp_path / "out.db"
    merge([a, b], out)
    assert ask(out, waits) == [("a", 1), ("b", 0)]
    make("", "a", busy_window(100 * SECOND), at_s=100, into="a.db")
    merge([a], out)  # one of its two nodes is taken anew: the rounds are counted anew as well
    assert ask(out, f"{waits} LIMIT 1") == [("a", 1)]
    assert ask(out, "SELECT seen FROM collective_round ORDER BY seq") == [(2,), (1,)]


def stack_window(start_ns: int, *functions: str):
    """A call, a wait and a sample with this stack, all of the same hash."""
    frames = tuple(Frame("python", name, "train.py", 1, None) for name in functions)
    return window(
        start_ns,
        calls=[call(at_ns=start_ns + 1)],
        waits=[wait(at_ns=start_ns + 2)],
        samples=[sample(77)],
        stacks=[ResolvedStack(77, frames)],
        call_stacks=np.array([77], np.int64),
        wait_stacks=np.array([77], np.int64),
    )


def test_equal_stacks_are_kept_once_and_unequal_ones_apart(make: Make, tmp_path: Path) -> None:
    stacks = {"a": "fg", "b": "fg", "c": "fhi", "d": "fhi"}
    paths = [make(f"{node}.db", node, stack_window(0, *names)) for node, names in stacks.items()]
    out = tmp_path / "out.db"
    merge(paths[:3], out)
    merge(paths, out)  # also one after the other
    for view in ("events", "samples"):
        by_node = (
            f"SELECT DISTINCT e.node, t.text FROM {view} e JOIN stack_text t ON t.stack_hash = e.stack_hash"
            " ORDER BY 1"
        )
        assert ask(out, by_node) == [
            (node, " < ".join(f"{name}() at train.py:1" for name in names)) for node, names in stacks.items()
        ]
    assert ask(out, "SELECT COUNT(*), COUNT(DISTINCT hash) FROM stack") == [(2, 2)]
    assert ask(out, "SELECT COUNT(*) FROM frame") == [(4,)]  # f g h i
    assert ask(out, "SELECT COUNT(*) FROM frame_text") == [(5,)]


def test_a_frame_that_leads_nowhere_shifts_no_other(make: Make, tmp_path: Path) -> None:
    path = make("a.db", "a", stack_window(0, "f", "g"))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE stack SET frames = json_insert(frames, '$[#]', 999)")
    connection.commit()
    connection.close()
    merge([path], tmp_path / "out.db")
    names = "SELECT depth, function FROM stacks ORDER BY depth"
    assert ask(tmp_path / "out.db", names) == ask(path, names) == [(0, "f"), (1, "g"), (2, None)]


def test_kernel_names_are_kept_once_and_launches_keep_theirs(make: Make, tmp_path: Path) -> None:
    paths = [make("a.db", "a"), make("b.db", "b", comm_window("x")), make("c.db", "c")]
    merge(paths, tmp_path / "out.db")
    launches = "SELECT node, kernel_name FROM cuda_events WHERE kernel_name IS NOT NULL ORDER BY 1"
    assert ask(tmp_path / "out.db", launches) == [
        ("a", "void scale<4>(python*)"), ("b", "void scale<4>(x*)"), ("c", "void scale<4>(python*)"),
    ]  # fmt: skip
    assert ask(tmp_path / "out.db", "SELECT short, known FROM kernel ORDER BY name") == [("scale", 1)] * 2


def test_samples_of_every_node_are_found_whoever_was_merged_first(make: Make, tmp_path: Path) -> None:
    late = make("late.db", "late", busy_window(50 * SECOND), at_s=50)
    long = make("long.db", "long", *(busy_window(at * SECOND) for at in range(40, 60)), at_s=40)
    out = tmp_path / "out.db"
    merge([late], out)
    merge([long], out)  # what is there already stays first
    for path, node, seconds in ((out, "late", 1), (out, "long", 20), (late, "late", 1)):
        with Reader(path) as reader:
            node_id = reader.rows("SELECT id FROM node WHERE name = ?", (node,))[0][0]
            found = SiteReader(reader.connection, node_id).samples(None, EPOCH_NS, EPOCH_NS + 100 * SECOND)
        assert found["count"].sum() == 7 * seconds, (path, node)
    with Reader(out, "long") as reader:
        assert reader.rows("SELECT SUM(count) FROM samples") == [(140,)]


def test_a_clock_that_was_set_is_said(tmp_path: Path) -> None:
    time = FakeTime()
    clock = time.clock()
    with Writer(tmp_path / "a.db", "a", clock, OPERATIONS) as writer:
        time.wall_ns -= 3 * SECOND
        assert clock.observe() is not None
        writer.write(busy_window(0))
    found = merge([tmp_path / "a.db"], tmp_path / "out.db").clocks
    assert [(note.node, note.what, note.offset_ns) for note in found] == [("a", "stepped", 3 * SECOND)]


@pytest.mark.parametrize(("ahead_ns", "said"), [(0, []), (50_000_000, []), (7 * SECOND, [("b", 7 * SECOND)])])
def test_clocks_are_compared_by_collectives(tmp_path: Path, ahead_ns: int, said: list) -> None:
    for rank, node in enumerate("ab"):
        time = FakeTime()
        time.wall_ns += ahead_ns * rank
        with Writer(tmp_path / f"{node}.db", node, time.clock(), OPERATIONS) as writer:
            calls = [
                call("ncclAllReduce", at_ns=at * 100_000_000, comm_hash=5, seq=at, rank=rank, nranks=2)
                for at in range(10)
            ]
            writer.write(window(calls=calls))
    found = merge([tmp_path / "a.db", tmp_path / "b.db"], tmp_path / "out.db").clocks
    assert [(note.node, note.offset_ns) for note in found] == said


def test_nothing_is_said_of_clocks_nobody_can_compare(make: Make, tmp_path: Path) -> None:
    merge([make("a.db", "a"), make("b.db", "b", at_s=50)], tmp_path / "out.db")
    connection = sqlite3.connect(tmp_path / "out.db")
    assert clock_notes(connection) == []
    connection.close()


def test_two_machines_with_one_name_are_noticed(make: Make, tmp_path: Path) -> None:
    a, b = make("a.db", "a"), make("b.db", "a")
    connection = sqlite3.connect(b)
    connection.execute("UPDATE recording SET boot_id = 'another'")
    connection.execute("UPDATE process SET boot_id = 'another'")
    connection.commit()
    connection.close()
    assert merge([a, b], tmp_path / "out.db").doubtful == ["a"]
    assert merge([a, make("c.db", "c")], tmp_path / "other.db").doubtful == []


@pytest.mark.parametrize("version", VERSIONS)
def test_databases_of_the_go_implementation_are_merged_with_ours(
    make: Make, tmp_path: Path, version: str
) -> None:
    go, ours, out = tmp_path / "go.db", make("ours.db", "ours"), tmp_path / "out.db"
    recorded = GoRecording(go, version).session(stopped_at=0).call(4, 100, 50, arg0=4096).away(500, 90)
    force = "go-node" if version == "0.8" else None
    if force:
        with pytest.raises(StoreError, match="does not say on which node"):
            merge([go, ours], out)
    merge([go, ours], out, force)
    node = force or recorded.node
    counts = "SELECT node, COUNT(*) FROM events GROUP BY node ORDER BY node"
    assert dict(ask(out, counts)) == {node: 2, "ours": 8}
    assert not merge([go], out, force).changed
    recorded.insert("process_names", pid=9, name="ingero", seen_at=0)  # the agent becomes known
    recorded.event(3, 5, 9000, pid=9)
    recorded.close()
    assert merge([go], out, force).changed  # it went on
    assert dict(ask(out, counts)) == {node: 3, "ours": 8}
    assert ask(out, "SELECT COUNT(*) FROM recording") == [(2,)]
