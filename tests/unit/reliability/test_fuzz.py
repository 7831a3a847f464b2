"""Every reader of what others wrote stands a few seconds of hostile inputs, the same ones each time."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import reliability
from benchmarks.fuzz import page, run
from benchmarks.fuzz.child import input_of
from benchmarks.fuzz.run import fuzz, keep
from benchmarks.fuzz.target import Target, Try
from benchmarks.fuzz.targets import ALL
from ingero.discover import python_layout
from ingero.errors import FileFormatError

SEED = 20260101
LONGEST_S = 20.0
# Inputs for each: some are a thousand times as dear as others.
FEW = {"pages": 12, "values": 12, "http": 60, "mcp": 40, "elf": 40, "memory": 60, "records": 150, "nvml": 150}


@pytest.mark.parametrize("target", ALL, ids=lambda each: each.name)
def test_hostile_inputs_end_in_an_answer_or_an_error(target: Target) -> None:
    outcome = fuzz(target, SEED, LONGEST_S, FEW.get(target.name, 300))
    assert not outcome.failures, "\n".join(text for _, text in outcome.failures.values())
    assert outcome.tried


@pytest.mark.parametrize("target", ALL, ids=lambda each: each.name)
def test_what_is_not_changed_is_read_without_complaint(target: Target) -> None:
    with target.ready() as attempt:
        for each in target.corpus():
            attempt(each)


def test_what_is_put_in_the_place_of_a_processes_memory_is_taken_away_again() -> None:
    (target,) = (each for each in ALL if each.name == "memory")
    before = python_layout.own_numbers, python_layout.TRY_AGAIN_S
    with target.ready() as attempt:
        attempt(target.corpus()[0])
    assert (python_layout.own_numbers, python_layout.TRY_AGAIN_S) == before


def test_the_same_seed_makes_the_same_inputs() -> None:
    (target,) = (each for each in ALL if each.name == "labels")
    corpus = target.corpus()
    made = [[input_of(target, corpus, seed, number) for number in range(20)] for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]


def reader(work: Try) -> Target:
    @contextmanager
    def ready() -> Iterator[Try]:
        yield work

    return Target("example", lambda: [b"abc"], ready)


def test_an_exception_that_nobody_documented_is_a_failure_and_its_input_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(data: bytes) -> None:
        if data == b"abc":
            raise FileFormatError("a clear error")
        raise KeyError(data)

    target = reader(work)
    outcome = fuzz(target, 1, 20, 50)
    assert [each.split()[0] for each in outcome.failures] == ["KeyError"]
    keep(target, 1, outcome, tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() != b"abc"
    assert f"--replay example {path}" in capsys.readouterr().out


def test_a_crash_is_a_failure_and_the_others_are_tried_all_the_same() -> None:
    def work(data: bytes) -> None:
        if len(data) < 3:
            faulthandler.disable()  # its stack is of no interest here
            os.kill(os.getpid(), signal.SIGSEGV)

    outcome = fuzz(reader(work), 1, 20, 60)
    assert list(outcome.failures) == ["ended by SIGSEGV"]


def test_computing_without_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.fuzz.child.HANG_CPU_S", 0.05)

    def work(_: bytes) -> None:
        while True:
            pass

    outcome = fuzz(reader(work), 1, 20, 2)
    assert all(each.startswith("hang:") for each in outcome.failures)
    assert outcome.failures


def test_counts_add_up_over_runs_and_are_on_the_page(tmp_path: Path) -> None:
    page.add(tmp_path, "elf", 1000, 0)
    page.add(tmp_path, "elf", 234, 1)
    page.add(tmp_path, "code", 5, 0)
    text = page.section(page.counts(tmp_path))
    assert "| elf | 1,234 | 1 |" in text
    assert "| all | 1,239 | 1 |" in text
    reliability.put(reliability.PAGE.read_text(encoding="utf-8"), "fuzz", text)


def test_every_target_is_described_on_the_page() -> None:
    text = reliability.PAGE.read_text(encoding="utf-8")
    assert not [each.name for each in ALL if f"| `{each.name}` |" not in text]


def test_names_of_targets_are_distinct() -> None:
    assert len({each.name for each in ALL}) == len(ALL)
    assert run.parse(["--only", "elf"]).only == "elf"
