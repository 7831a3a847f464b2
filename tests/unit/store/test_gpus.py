"""What cards told, stored, read back, merged and trimmed."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.model.window import Unwatchable, Window
from ingero.store import migrations
from ingero.store.merge.result import merge
from ingero.store.reader import Reader
from ingero.store.recording import connect
from ingero.store.writer import Writer
from tests.builders import EPOCH_NS, OPERATIONS, SECOND, fixed_clock

Ask = Callable[..., list[dict[str, Any]]]
CARD = GpuCard(0, "NVIDIA H200", "GPU-1", "00:19.0", "580.1", 141 << 30, sm_clock_max_mhz=1980, mig=False)


def window(second: int, *samples: GpuSample, cards: tuple[GpuCard, ...] = (CARD,), **more: Any) -> Window:
    processes = more.pop("processes", ())
    made = Window(second * SECOND, (second + 1) * SECOND, **more)
    made.gpus = GpuNews(cards, samples, tuple(processes))
    return made


def sample(second: float, gpu_id: int = 0, **more: Any) -> GpuSample:
    return GpuSample(gpu_id, int(second * SECOND), **more)


def test_a_sample_is_one_row_with_its_reasons_in_words(ask: Ask) -> None:
    at = sample(0.5, gpu_share=0.75, reasons=0x48, power_mw=650_000, remap_failed=False)
    (row,) = ask("SELECT * FROM gpu_samples", window(0, at))
    assert (row["gpu_id"], row["timestamp_ns"]) == (0, EPOCH_NS + SECOND // 2)
    assert (row["gpu_share"], row["power_mw"], row["lost"], row["remap_failed"]) == (0.75, 650_000, 0, 0)
    assert row["reason_names"] == "hw_slowdown hw_thermal_slowdown"


def test_what_is_not_known_is_null_and_never_zero(ask: Ask) -> None:
    (row,) = ask("SELECT * FROM gpu_samples", window(0, sample(0.5)))
    known = {name for name, value in row.items() if value is not None}
    assert known == {"node", "gpu_id", "timestamp_ns", "lost"}


def test_no_reason_is_another_thing_than_an_unknown_one(ask: Ask) -> None:
    rows = ask("SELECT reason_names FROM gpu_samples", window(0, sample(0.1, reasons=0), sample(0.2)))
    assert [row["reason_names"] for row in rows] == ["", None]


def test_a_card_is_one_row_however_often_it_is_told(ask: Ask) -> None:
    later = GpuCard(0, "NVIDIA H200", "GPU-1", "00:19.0", "580.1", 141 << 30, sm_clock_set_mhz=900)
    (row,) = ask("SELECT * FROM gpus", window(0), window(1, cards=(later,)))
    assert (row["uuid"], row["memory_bytes"], row["sm_clock_set_mhz"]) == ("GPU-1", 141 << 30, 900)
    assert row["last_ns"] > row["first_ns"]


def test_another_card_in_the_same_slot_is_another_row(ask: Ask) -> None:
    rows = ask("SELECT uuid FROM gpus", window(0), window(1, cards=(GpuCard(0, "x", "GPU-2"),)))
    assert sorted(row["uuid"] for row in rows) == ["GPU-1", "GPU-2"]


def test_who_is_on_a_card_is_named(ask: Ask) -> None:
    users = [GpuProcess(0, SECOND // 2, 42, "python", 1 << 30, 0.5), GpuProcess(0, SECOND // 2, 43, None)]
    rows = ask("SELECT * FROM gpu_processes ORDER BY pid", window(0, sample(0.5), processes=users))
    assert [(row["pid"], row["comm"], row["memory_bytes"], row["sm_share"]) for row in rows] == [
        (42, "python", 1 << 30, 0.5),
        (43, None, None, None),
    ]


def facts(reader: Reader) -> Any:
    (recording,) = reader.recordings()
    return reader.facts(recording, recording.started_ns, recording.last_ns + 1)


def test_the_diagnosis_reads_means_of_a_slice_and_clocks_only_of_busy_samples(
    stored: Callable[..., Reader],
) -> None:
    busy = sample(0.2, gpu_share=0.9, sm_clock_mhz=1200, reasons=0x8, temperature_c=91, pcie_gen=5)
    idle = sample(1.2, gpu_share=0.1, sm_clock_mhz=300, reasons=0x1, temperature_c=80, pcie_gen=1)
    found = facts(stored(window(0, busy), window(1, idle), window(2, sample(2.5)))).cards
    first, last = found.samples
    assert (first["slice"], first["samples"], first["gpu_share"]) == (0, 2, 0.5)
    assert (first["busy_clock_mhz"], first["forced_share"], first["reasons"]) == (1200, 1, 0x8)
    assert (first["temperature_c"], first["pcie_gen"]) == (91, 5)
    assert math.isnan(last["gpu_share"])
    assert math.isnan(last["busy_clock_mhz"])
    assert found.cards == {0: CARD}
    assert not found.trouble


def test_new_memory_errors_count_and_old_ones_do_not(stored: Callable[..., Reader]) -> None:
    old = [sample(0.2, 0, ecc_uncorrected=3), sample(0.2, 1, ecc_uncorrected=3)]
    new = [sample(1.2, 0, ecc_uncorrected=3), sample(1.2, 1, ecc_uncorrected=5)]
    (trouble,) = facts(stored(window(0, *old), window(1, *new))).cards.trouble
    assert (trouble.gpu_id, trouble.ecc_uncorrected, trouble.lost) == (1, 2, False)


def test_a_recording_without_samples_says_why(stored: Callable[..., Reader]) -> None:
    told = window(0, cards=(), not_watched=[Unwatchable(0, "gpu", "NVML: Driver Not Loaded")])
    found = facts(stored(told, window(1, cards=()), window(2, cards=())))
    assert found.absent["gpu"] == "NVML: Driver Not Loaded"


def test_a_database_of_before_gets_the_tables(path: Path) -> None:
    connection = connect(path)
    for name in ("gpus", "gpu_samples", "gpu_processes"):
        connection.execute(f"DROP VIEW {name}")
    for name in ("gpu", "gpu_sample", "gpu_process"):
        connection.execute(f"DROP TABLE {name}")
    connection.execute("DELETE FROM migration WHERE name = '0004-gpus'")
    assert migrations.upgrade(connection, path) == ["0004-gpus"]
    connection.close()
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        assert writer.write(window(0, sample(0.5, gpu_share=1.0))) == ""
    with Reader(path) as reader:
        assert reader.rows("SELECT gpu_share FROM gpu_samples") == [(1.0,)]


def test_cards_of_two_nodes_stay_apart_when_merged(tmp_path: Path) -> None:
    sources = []
    for node, share in (("a", 0.25), ("b", 0.75)):
        sources.append(tmp_path / f"{node}.db")
        with Writer(sources[-1], node, fixed_clock(), OPERATIONS) as writer:
            user = GpuProcess(0, SECOND // 2, 7, f"job-{node}", 1 << 20)
            writer.write(window(0, sample(0.5, gpu_share=share), processes=[user]))
    merge(sources, tmp_path / "both.db")
    connection = sqlite3.connect(tmp_path / "both.db")
    assert connection.execute("SELECT node, gpu_share FROM gpu_samples ORDER BY node").fetchall() == [
        ("a", 0.25),
        ("b", 0.75),
    ]
    assert connection.execute("SELECT comm FROM gpu_processes ORDER BY node").fetchall() == [
        ("job-a",),
        ("job-b",),
    ]
    assert connection.execute("SELECT COUNT(*) FROM gpus").fetchone() == (2,)
    connection.close()


@pytest.mark.parametrize("table", ["gpu_sample", "gpu_process"])
def test_samples_go_with_the_seconds_when_room_is_needed(path: Path, table: str) -> None:
    from ingero.store.retention import _SECONDS

    assert (table, "at_ns") in _SECONDS
