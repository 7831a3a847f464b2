"""The catalogue keeps its promises: names scripts rely on, a page each, nothing forgotten."""

from __future__ import annotations

import importlib
import re

import pytest

from ingero.detectors import ALL, KINDS
from ingero.detectors.detector import Detector, no_evidence
from ingero.model import words
from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers import catalogue
from tests.contracts.tree import ROOT, under

# Scripts, metrics and dashboards use these names: they are stable.
NAMES = [
    "cpu-contention",
    "cpu-throttled",
    "noisy-neighbour",
    "data-starvation",
    "disk-wait",
    "memory-pressure",
    "oom-kill",
    "gil-contention",
    "gc-pause",
    "network-retransmits",
    "slow-peer",
    "sync-heavy",
    "launch-bound",
    "copy-bound",
    "alloc-churn",
    "gpu-memory-leak",
    "cuda-oom",
    "managed-thrash",
    "cold-start",
    "periodic-spike",
    "graph-trouble",
    "gpu-shared",
    "nccl-straggler",
    "nccl-hang",
    "collective-imbalance",
    "gpu-throttled",
    "gpu-fault",
    "cuda-error",
    "version-mismatch",
    "pod-restart",
    "kv-cache-pressure",
    "head-of-line",
    "underutilised",
    "slowdown",
    "gpu-idle",
]
STATES = [
    "cuda-error",
    "cuda-oom",
    "gpu-fault",
    "oom-kill",
    "gpu-memory-leak",
    "version-mismatch",
    "pod-restart",
    "nccl-hang",
    "graph-trouble",
]
PAGES = ROOT / "docs/detectors"
FIXED = [detector for detector in ALL if detector.severity != "by wall time lost"]
ids = [detector.name for detector in ALL]


def modules() -> set[str]:
    """Every module of the folder that holds a detector."""
    found = {path.stem for path in under("src/ingero/detectors", ".py") if path.stem != "__init__"}
    return {
        stem for stem in found if hasattr(importlib.import_module(f"ingero.detectors.{stem}"), "DETECTOR")
    }


def test_the_kinds_are_the_ones_scripts_rely_on() -> None:
    assert sorted(KINDS) == sorted(NAMES)
    assert len(set(KINDS)) == len(KINDS)


def test_every_module_with_a_detector_is_in_the_catalogue() -> None:
    assert modules() == {detector.name.replace("-", "_") for detector in ALL if not detector.unwatched}


@pytest.mark.parametrize("detector", [d for d in ALL if not d.unwatched], ids=lambda d: d.name)
def test_the_file_bears_the_name_of_its_detector(detector: Detector) -> None:
    assert catalogue.module_of(detector).DETECTOR is detector


@pytest.mark.parametrize("detector", ALL, ids=ids)
def test_the_module_says_how_it_shows_what_proves_it_what_it_is_not_and_what_it_cannot_see(
    detector: Detector,
) -> None:
    summary, parts = catalogue.described(catalogue.words_of(detector))
    assert re.match(r"[A-Z].*: .*\.$", summary)
    assert [part for part in parts if part != "Severity"] == list(catalogue.PARTS)
    assert all(text.endswith(".") for text in parts.values())


@pytest.mark.parametrize("detector", ALL, ids=ids)
def test_every_kind_has_its_page(detector: Detector) -> None:
    text = (PAGES / f"{detector.name}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {detector.name}\n")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {part}" for part in catalogue.PARTS
    ]


def test_no_page_is_left_of_a_kind_that_is_gone() -> None:
    known = {f"{name}.md" for name in KINDS} | {"README.md", "thresholds.md"}
    assert {path.name for path in PAGES.iterdir()} == known


@pytest.mark.parametrize("detector", ALL, ids=ids)
def test_a_kind_is_either_looked_for_or_says_why_not(detector: Detector) -> None:
    assert (detector.find is no_evidence) == (bool(detector.unwatched) or detector.rest)
    assert detector.needs or detector.either


def test_every_source_a_detector_needs_is_explained_and_no_other() -> None:
    assert set(words.SOURCES) == {name for detector in ALL for name in detector.needs | detector.either}


def test_states_have_a_severity_of_their_own_and_times_have_it_by_the_share_lost() -> None:
    fixed = {d.name for d in ALL if d.severity != "by wall time lost" and not d.unwatched}
    assert fixed - {"cold-start", "underutilised"} == set(STATES)


@pytest.mark.parametrize("detector", FIXED, ids=[detector.name for detector in FIXED])
def test_the_severity_of_a_state_is_told_alike_in_its_words_and_its_field(detector: Detector) -> None:
    _, parts = catalogue.described(catalogue.words_of(detector))
    levels = r"CRITICAL|HIGH|MEDIUM|LOW"
    assert set(re.findall(levels, parts["Severity"])) == set(re.findall(levels, detector.severity))


@pytest.mark.parametrize("detector", [d for d in ALL if not d.unwatched], ids=lambda d: d.name)
def test_every_watched_kind_has_its_tests(detector: Detector) -> None:
    assert (ROOT / f"tests/unit/detectors/test_{detector.name.replace('-', '_')}.py").exists()


def test_the_buckets_are_the_ones_scripts_rely_on() -> None:
    wanted = [
        "cuda_cpu",
        "host_cpu",
        "runqueue",
        "gpu_wait",
        "disk_wait",
        "memory_wait",
        "lock_wait",
        "peer_wait",
        "net_wait",
        "sleep",
        "unexplained",
        "lost",
    ]
    assert set(BUCKET_NAMES) | {"lost"} == set(wanted)
