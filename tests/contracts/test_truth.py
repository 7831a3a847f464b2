"""The suite of injected faults is what it says: complete, repeatable, and gives nothing away."""

from __future__ import annotations

import dataclasses
import json
import os
from random import Random

import pytest

from benchmarks.truth.cases import DEV, SETS, chosen, drawn
from benchmarks.truth.drawn import Case
from benchmarks.truth.jobs.settings import Settings
from benchmarks.truth.props import Prop
from benchmarks.truth.run import main
from tests.contracts.tree import name, under

# The contract's names; a detector's file and page have them too.
KINDS = {
    "cpu-contention", "cpu-throttled", "noisy-neighbour", "data-starvation", "disk-wait", "memory-pressure",
    "oom-kill", "gil-contention", "gc-pause", "network-retransmits", "slow-peer", "sync-heavy",
    "launch-bound", "copy-bound", "alloc-churn", "gpu-memory-leak", "cuda-oom", "managed-thrash",
    "cold-start", "periodic-spike", "graph-trouble", "gpu-shared", "nccl-straggler", "nccl-hang",
    "collective-imbalance", "gpu-throttled", "gpu-fault", "cuda-error", "version-mismatch", "pod-restart",
    "kv-cache-pressure", "head-of-line", "underutilised",
}  # fmt: skip
FAULTS = [case for case in SETS["all"] if not case.healthy]


def test_there_are_faults_and_healthy_runs_enough() -> None:
    assert len(FAULTS) >= 22
    assert len(DEV) - len([case for case in DEV if not case.healthy]) >= 9
    assert len({case.name for case in SETS["all"]}) == len(SETS["all"])


def test_every_expected_kind_is_one_of_the_contract() -> None:
    assert not {kind for case in SETS["all"] for kind in (*case.expected, *case.also, *case.instead)} - KINDS


def described(case: Case, seed: int) -> str:
    draw = drawn(case, seed)
    props = [{**vars(prop), "is": type(prop).__name__} for prop in draw.props]
    return json.dumps(dataclasses.asdict(dataclasses.replace(draw, props=[])) | {"props": props}, default=str)


@pytest.mark.parametrize("case", SETS["all"], ids=lambda case: case.name)
def test_a_draw_depends_on_its_seed_and_on_nothing_else(case: Case) -> None:
    assert described(case, 1) == described(case, 1)
    assert len({described(case, seed) for seed in range(20)}) > 1
    names = {field.name for field in dataclasses.fields(Settings)}
    for seed in range(50):
        draw = drawn(case, seed)
        assert not {*draw.usual, *draw.later} - names


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_the_healthy_twin_lacks_only_the_fault(case: Case) -> None:
    """Something must differ: settings that change later, or a prop that bites."""
    draw = case.draw(Random(1))
    biting = [prop for prop in draw.props if type(prop).bite is not Prop.bite]
    assert draw.later or biting or draw.faulty_stub


def test_no_job_shows_what_is_wrong_with_it_in_its_name_or_paths() -> None:
    words = {word for kind in KINDS for word in kind.split("-")}
    shown = {word for path in under("benchmarks/truth/jobs") for word in path.stem.split("_")}
    assert not shown & words
    for path in under("benchmarks/truth/jobs", ".py"):
        text = path.read_text(encoding="utf-8")
        assert not [kind for kind in KINDS if kind in text], name(path)


def test_only_chooses_by_the_beginning_of_the_name() -> None:
    assert {case.name for case in chosen("dev", ["cpu-limit"])} == {"cpu-limit", "cpu-limit-with-workers"}
    assert chosen("dev", []) == list(DEV)


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main([]) == 1
    assert "needs root" in capsys.readouterr().err


def test_a_case_that_is_not_there_is_wrong_usage() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "no-such-case"])
    assert ended.value.code == 2
