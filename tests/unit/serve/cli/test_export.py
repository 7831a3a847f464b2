"""export: files that other programs read, checked with the published definitions."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from ingero.serve.answers.schema import VIEWS
from ingero.serve.answers.tables import COLUMNS, column_kinds
from ingero.serve.cli import output
from ingero.serve.cli.export import FORMATS
from ingero.serve.cli.main import main
from ingero.serve.cli.perfetto_packets import instant, varint
from ingero.store.reader import Reader
from ingero.store.writer import Writer
from tests.builders import OPERATIONS, SECOND, FakeTime, call, process, window


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "demo.db"
    assert main(["demo", "--no-gpu", "--no-tui", "--speed", "10000", "-d", str(path), "incident"]) == 0
    return path


def exported(path: Path, out: Path, *more: str) -> Path:
    assert main(["export", "-d", str(path), "-o", str(out), *more]) == 0
    assert out.stat().st_mode & 0o777 == 0o600
    return out


@pytest.fixture(scope="module")
def trace(recording: Path) -> Trace:
    found = Trace()
    found.ParseFromString(
        exported(recording, recording.with_name("t.pftrace"), "--format", "perfetto").read_bytes()
    )
    return found


def count(path: Path, sql: str) -> int:
    with Reader(path) as reader:
        return int(reader.rows(sql)[0][0])


def test_every_packet_is_one_the_definitions_know(trace: Trace) -> None:
    known = Trace()
    known.CopyFrom(trace)
    known.DiscardUnknownFields()
    assert known.ByteSize() == trace.ByteSize()
    assert trace.packet[0].clock_snapshot.primary_trace_clock == 6


def test_time_never_goes_back_on_a_track_and_every_slice_ends(trace: Trace) -> None:
    last: dict[int, int] = {}
    open_slices: Counter[int] = Counter()
    known: set[int] = set()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            known.add(packet.track_descriptor.uuid)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in known
        assert packet.timestamp >= last.get(event.track_uuid, 0)
        last[event.track_uuid] = packet.timestamp
        open_slices[event.track_uuid] += {1: 1, 2: -1}.get(event.type, 0)
        assert open_slices[event.track_uuid] >= 0
    assert not +open_slices


def named(trace: Trace) -> list[tuple[str, TrackEvent]]:
    names: dict[int, str] = {}
    found = []
    for packet in trace.packet:
        names |= {each.iid: each.name for each in packet.interned_data.event_names}
        if packet.HasField("track_event") and packet.track_event.type != TrackEvent.TYPE_SLICE_END:
            found.append((names.get(packet.track_event.name_iid, ""), packet.track_event))
    return found


def test_every_call_is_a_slice_with_its_arguments(trace: Trace, recording: Path) -> None:
    slices = Counter(name for name, event in named(trace) if event.type == TrackEvent.TYPE_SLICE_BEGIN)
    with Reader(recording) as reader:
        calls = dict(reader.rows("SELECT op, COUNT(*) FROM cuda_events GROUP BY op"))
    assert calls
    assert {op: slices[op] for op in calls} == calls
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    for packet in trace.packet:
        names |= {each.iid: each.name for each in packet.interned_data.debug_annotation_names}
        texts |= {each.iid: each.str.decode() for each in packet.interned_data.debug_annotation_string_values}
    copies = [
        {
            names[each.name_iid]: texts.get(each.string_value_iid) or each.int_value
            for each in event.debug_annotations
        }
        for name, event in named(trace)
        if name.startswith("cuMemcpyHtoD")
    ]
    assert copies
    assert all(each["bytes"] > 0 and each["direction"] == "HtoD" for each in copies)
    assert all("to_device (/workspace/train.py:48)" in each["stack"].splitlines() for each in copies)


def test_every_arrow_has_two_ends(trace: Trace) -> None:
    begins = [flow for _, event in named(trace) for flow in event.flow_ids]
    ends = [flow for _, event in named(trace) for flow in event.terminating_flow_ids]
    assert sorted(begins) == sorted(ends)
    assert len(set(begins)) == len(begins) > 0


def test_findings_and_counters_are_in_it(trace: Trace) -> None:
    found = [name for name, _ in named(trace)]
    assert any(name.startswith("HIGH: stress-ng-cpu") for name in found)
    assert any(event.type == TrackEvent.TYPE_COUNTER for _, event in named(trace))


def test_the_json_has_the_same_slices(trace: Trace, recording: Path, tmp_path: Path) -> None:
    text = exported(recording, tmp_path / "t.json", "--format", "perfetto").read_text()
    events = json.loads(text)["traceEvents"]
    counted = Counter(each["ph"] for each in events)
    slices = Counter(each["name"] for each in events if each["ph"] == "X" and (each["dur"] or "cat" in each))
    flows = sum(len(event.flow_ids) for _, event in named(trace))
    assert counted["s"] == counted["f"] == flows
    binary = Counter(name for name, event in named(trace) if event.type == TrackEvent.TYPE_SLICE_BEGIN)
    assert {name: slices[name] for name in binary} == dict(binary)
    start_ns = int(json.loads(text)["otherData"]["start_ns"])
    assert abs(start_ns - trace.packet[0].timestamp) < SECOND
    # every process and thread drawn on is named
    drawn = {(each["pid"], each["tid"]) for each in events if each["ph"] in "XisfB"}
    assert drawn <= {(each["pid"], each["tid"]) for each in events if each["name"] == "thread_name"} | {
        (each["pid"], each["tid"]) for each in events if each["name"] == "process_name"
    }


@pytest.mark.parametrize(
    "value", [0, 1, 127, 128, 300, (1 << 14) - 1, 1 << 14, 1 << 28, 1 << 35, (1 << 63) + 9, -1]
)
def test_numbers_are_encoded_as_protobuf_has_them(value: int) -> None:
    wanted, rest = b"", value & (1 << 64) - 1
    while rest >= 128:
        wanted, rest = wanted + bytes([rest & 127 | 128]), rest >> 7
    wanted += bytes([rest])
    assert varint(value) == wanted
    if value >= 0:
        assert instant(value) == wanted


def test_csv_has_every_row_and_stays_a_table(recording: Path, tmp_path: Path) -> None:
    text = exported(recording, tmp_path / "events.csv", "--format", "csv").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == count(recording, "SELECT COUNT(*) FROM events")
    assert sum(int(row["duration"] or 0) for row in rows) == count(
        recording, "SELECT SUM(duration) FROM events"
    )


def test_a_formula_from_a_traced_process_is_text_for_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Writer(path, "n", FakeTime().clock(), OPERATIONS) as writer:
        evil = process(comm="=1+1", cmdline='@SUM(A1) "x",\n=cmd|calc')
        writer.write(window(calls=[call(comm="-sh"), call("cudaMalloc", ret=-5)], processes=[evil]))
    text = exported(path, tmp_path / "p.csv", "--format", "csv", "--table", "processes").read_text()
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["comm"], row["cmdline"][:9]) == ("'=1+1", "'@SUM(A1)")
    events = list(
        csv.DictReader(io.StringIO(exported(path, tmp_path / "e.csv", "--format", "csv").read_text()))
    )
    assert {row["comm"] for row in events} == {"'-sh", "'=1+1", "python"}
    assert "-5" in {row["ret_code"] for row in events}  # a number is no formula


def test_every_table_goes_into_a_folder(recording: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for form in ("csv", "parquet"):
        assert main(["export", "-d", str(recording), "--format", form, "-o", f"{tmp_path}/all/"]) == 0
        names = {path.stem for path in (tmp_path / "all").glob(f"*.{form}")}
        assert names == {view.name for view in VIEWS}
    with Reader(recording) as reader:
        for view in VIEWS:
            table = parquet.read_table(tmp_path / "all" / f"{view.name}.parquet")
            rows = [tuple(row.values()) for row in table.to_pylist()]
            assert rows == reader.rows(f"SELECT {', '.join(view.columns)} FROM {view.name}"), view.name


def test_the_kind_of_every_column_is_what_the_database_has(recording: Path) -> None:
    kinds = {"text": {"text"}, "real": {"real", "integer"}, "whole": {"integer"}}
    with Reader(recording) as reader:
        for name, columns in COLUMNS.items():
            for column in columns:
                found = reader.rows(
                    f"SELECT DISTINCT typeof({column}) FROM {name} WHERE {column} IS NOT NULL"
                )
                assert {row[0] for row in found} <= kinds[column_kinds(name)[column]], (name, column)


def test_tables_can_be_narrowed(recording: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def lines(*more: str) -> int:
        capfd.readouterr()
        assert main(["export", "-d", str(recording), "--format", "csv", *more]) == 0
        return len(capfd.readouterr().out.splitlines()) - 1

    whole = lines("--table", "thread_time")
    assert 0 < lines("--table", "thread_time", "--since", "5s") < whole
    assert 0 < lines("--table", "thread_time", "--pid", "4830") < whole
    assert lines("--table", "findings", "--since", "1s") == 0
    assert lines("--table", "findings") > 0
    assert lines("--table", "containers", "--since", "1s") == count(
        recording, "SELECT COUNT(*) FROM containers"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--format", "perfetto"], "is written to a file"),
        (["--format", "perfetto", "-o", "x.json", "--table", "events"], "--table is for"),
        (["--format", "folded", "-o", "x", "--table", "events"], "--table is for"),
        (["--format", "csv", "--what", "waits"], "--what is for folded"),
        (["--format", "perfetto", "-o", "x.json", "--op", "cudaFree"], "--op is for folded"),
        (["--format", "csv", "--table", "secrets"], "there is no table"),
        (["--format", "csv", "--node", "elsewhere"], "there is no node"),
        (["--format", "csv", "-o", "/nowhere/at/all.csv"], "cannot write"),
        (["--format", "pdf"], "invalid value"),
    ],
)
def test_what_cannot_be_done_is_said(
    recording: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["export", "-d", str(recording), *arguments]) in (1, 2)
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_pyarrow_parquet_says_what_to_install(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    out = tmp_path / "e.parquet"
    assert main(["export", "-d", str(recording), "--format", "parquet", "-o", str(out)]) == 2
    assert "ingero[parquet]" in capsys.readouterr().err
    assert not out.exists()


def test_a_damaged_recording_leaves_no_half_file(recording: Path, tmp_path: Path) -> None:
    copy, out = tmp_path / "copy.db", tmp_path / "t.pftrace"
    copy.write_bytes(recording.read_bytes())
    connection = sqlite3.connect(copy)
    connection.execute(
        "UPDATE event SET ts_ns = 'soon' WHERE id = (SELECT MAX(id) FROM event WHERE source = 4)"
    )
    connection.execute("UPDATE event SET duration_ns = 'long' WHERE source = 4")
    connection.commit()
    connection.close()
    assert main(["export", "-d", str(copy), "--format", "perfetto", "-o", str(out)]) == 1
    assert not out.exists()


def test_every_format_can_be_imported() -> None:
    import importlib

    for place in FORMATS.values():
        module, _, function = place.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
    assert callable(output.parquet_modules)  # used by query as well


def test_a_folder_behind_somebody_elses_link_is_not_written_into(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a link of somebody else")
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    shared.mkdir()
    mine.mkdir()
    shared.chmod(0o1777)
    (shared / "out").symlink_to(mine)
    words = ["export", "-d", str(recording), "--format", "csv", "-o", f"{shared / 'out'}/"]
    assert main(words) == 0
    os.chown(shared / "out", 12345, 12345, follow_symlinks=False)
    for file in mine.iterdir():
        file.write_text("precious")
    capsys.readouterr()
    assert main(words) == 2
    assert "link of another user" in capsys.readouterr().err
    assert {file.read_text() for file in mine.iterdir()} == {"precious"}
