"""A small file system that a trace fills to the brim: what was dropped is told there and then, and later."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.ebpf.real_runs import Place, finished, json_lines, until
from tests.ebpf.tracing import workload

pytestmark = pytest.mark.timeout(120)
SIZE = 6 << 20
LOG_BYTES = 600_000  # more than an empty database takes


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(db: Path) -> None:
    """To the last byte, once the first seconds are stored."""
    log = db.with_name(db.name + "-wal")
    until(lambda: log.exists() and log.stat().st_size > LOG_BYTES, "the first second is stored")
    with contextlib.suppress(OSError), (db.parent / "ballast").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def lost(text: str) -> dict[str, int]:
    """As the line below the tables has it: `Dropped: ring_call 3, store_backlog 1,248`."""
    found = re.findall(r"^\s*Dropped: (\w.*)$", text, re.MULTILINE)
    assert found, text
    return {
        name: int(count.replace(",", "")) for name, count in re.findall(r"(\w+) ([\d,]+\d|\d)", found[-1])
    }


def test_what_a_full_disk_took_is_in_every_answer(place: Place, steady: str, small: Path) -> None:
    db = str(small / "trace.db")
    with workload(steady) as job, ThreadPoolExecutor(1) as beside:
        job.start()
        filled = beside.submit(fill, Path(db))
        done = place.ingero(
            "trace", "--pid", str(job.pid), "--duration", "5s", "--no-tui", "--record-all", "-d", db
        )
        filled.result()
        finished(job)
    assert done.returncode == 0, done.stderr
    assert "no space left for the database" in done.stdout
    told = lost(done.stdout)
    assert told["store_backlog"] > 0
    answer = json_lines(place.ingero("explain", "-d", db, "--json").stdout)[0]
    assert {each["reason"]: each["count"] for each in answer["losses"]} == told
    assert "could not be stored" in answer["not_watched"][0]["why"]


def test_the_demo_says_why_it_ends_with_a_failure(place: Place, small: Path) -> None:
    (small / "ballast").write_bytes(bytes(SIZE - (2 << 20)))
    db = str(small / "demo.db")
    done = place.ingero("demo", "--no-gpu", "--no-tui", "--speed", "200", "-d", db)
    assert done.returncode == 1
    assert done.stderr == "Some of it was not recorded: no space left for the database.\n"
    assert re.search(r"Dropped: +store_backlog [\d,]+", done.stdout)
    assert "not stored: no space left" in done.stdout
