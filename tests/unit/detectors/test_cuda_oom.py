"""CUDA out of memory: status 2 of CUDA calls."""

from __future__ import annotations

from ingero.model.facts import ErrorFact
from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SECOND, Story, job

KIND = "cuda-oom"


def short(*ops: str, code: int = 2, count: int = 3) -> Story:
    story = job()
    story.facts.errors = [
        ErrorFact(JOB, JOB, op, code, count, (n + 1) * SECOND, (n + 1) * SECOND, f"node:{n}")
        for n, op in enumerate(ops)
    ]
    return story


def test_a_failed_allocation_is_told_with_its_calls() -> None:
    (finding,) = short("cudaMalloc").findings()
    assert (finding.kind, finding.severity, finding.victim.pid) == (KIND, Severity.HIGH, JOB)
    assert "cudaMalloc ran out of GPU memory 3 times" in finding.title
    assert finding.evidence[0].event_ids == ["node:0"]
    assert finding.causes == []


def test_runtime_and_driver_telling_of_the_same_failure_are_one() -> None:
    (finding,) = short("cudaMalloc", "cuMemAlloc_v2").findings()
    assert "3 times" in finding.title
    assert len(finding.evidence) == 2


def test_two_processes_are_two_findings() -> None:
    story = short("cudaMalloc")
    story.facts.errors.append(ErrorFact(HOG, HOG, "cudaMalloc", 2, 1, SECOND, SECOND, "node:9"))
    assert {each.victim.pid for each in story.findings()} == {JOB, HOG}


def test_status_2_of_nccl_is_not_out_of_memory() -> None:
    assert short("ncclAllReduce").kinds() == ["cuda-error"]


def test_other_errors_are_not_out_of_memory() -> None:
    assert short("cudaMalloc", code=1).kinds() == ["cuda-error"]


def test_a_healthy_run_is_quiet() -> None:
    assert short().kinds() == []


def test_without_calls_it_says_so() -> None:
    assert short("cudaMalloc").abstains(KIND, "calls")


def test_how_full_the_card_was_and_who_held_it_is_told() -> None:
    story = short("cudaMalloc").looked(memory_used_bytes=140 << 30)
    story.on_card(JOB, memory=40 << 30, name="python3")
    (finding,) = story.on_card(HOG, memory=99 << 30, name="notebook").findings()
    text = finding.evidence[1].text
    assert "GPU 0 had 140 GiB of 141 GiB in use" in text
    assert f"notebook (pid {HOG}) 99 GiB" in text
    assert [(who.pid, who.comm) for who in finding.who] == [(HOG, "notebook")]


def test_room_left_on_the_card_hints_at_pieces() -> None:
    story = short("cudaMalloc").looked(memory_used_bytes=50 << 30).on_card(JOB, memory=49 << 30)
    assert "fragmented" in story.findings()[0].evidence[1].text
    full = short("cudaMalloc").looked(memory_used_bytes=140 << 30).on_card(JOB, memory=49 << 30)
    assert "fragmented" not in full.findings()[0].evidence[1].text


def test_without_counters_the_failed_calls_are_all_there_is() -> None:
    assert len(short("cudaMalloc").findings()[0].evidence) == 1
