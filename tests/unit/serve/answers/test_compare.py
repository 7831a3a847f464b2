"""Before and after: what is gone, what stayed, and whether the promise held."""

from __future__ import annotations

import io

import pytest

from ingero.model.report import NotWatched, StepTime
from ingero.serve.answers.compare import compare
from ingero.serve.cli.as_text import write_text
from ingero.serve.cli.comparison import comparison
from ingero.serve.cli.tables import console
from tests.builders import finding, lossy, process_report, report

SLOW, FAST = StepTime("sync", 100, 60_000_000, 100_000_000), StepTime("sync", 200, 60_000_000, 60_000_000)


def text_of(answer: object) -> str:
    out = io.StringIO()
    write_text(comparison(answer), console(out))  # type: ignore[arg-type]
    return out.getvalue()


def test_findings_are_matched_by_kind_and_name_not_by_pid() -> None:
    before = report(finding(pid=1), finding("Slow disk", kind="disk-wait", pid=1))
    after = report(finding(pid=2, wall_share=0.1), finding("Pauses", kind="gc-pause", pid=2))
    answer = compare("a.db", before, "b.db", after)
    assert [(change.kind, change.status) for change in answer.findings] == [
        ("cpu-contention", "still-there"),
        ("disk-wait", "gone"),
        ("gc-pause", "new"),
    ]
    text = text_of(answer)
    assert "Slow disk: gone" in text
    assert "40.0 % → 10.0 %" in text
    assert "none → 40.0 %" in text


def test_the_promised_gain_stands_beside_the_real_one() -> None:
    before = report(finding(gain_share=0.35), processes=[process_report(step=SLOW)])
    after = report(processes=[process_report(7, step=FAST)])
    answer = compare("a.db", before, "b.db", after)
    assert answer.gain.promised_share == 0.35
    assert answer.gain.real_share == pytest.approx(0.4)
    text = text_of(answer)
    assert "100 ms → 60 ms (40.0 % less)" in text
    assert "40.0 % of the step time; what is gone promised 35.0 %" in text


def test_what_neither_side_saw_is_said_once_and_a_reason_once() -> None:
    """A dozen kinds that one missing source hides stand in one row, not in twelve on each side."""
    missed = [NotWatched("gil", "no driver"), NotWatched("xid", "no driver"), NotWatched("gc", "late")]
    same, other = report(not_watched=missed), report(not_watched=missed[:1])
    text = text_of(compare("a.db", same, "b.db", same))
    assert text.count("Not seen:    gil, xid (no driver); gc (late)\n") == 1
    assert text.count("no driver") == 1
    text = text_of(compare("a.db", same, "b.db", other))
    assert "Before:      not seen: gil, xid (no driver); gc (late)\n" in text
    assert "After:       not seen: gil (no driver)\n" in text


def test_buckets_are_per_step_where_steps_are_known_and_shares_otherwise() -> None:
    before = report(processes=[process_report(step=SLOW)])
    after = report(processes=[process_report(7, step=FAST)])
    gpu = next(row for row in compare("a", before, "b", after).buckets if row.bucket == "gpu_wait")
    assert (gpu.before_share, gpu.before_step_ns, gpu.after_step_ns) == (0.45, 90_000_000, 45_000_000)
    unknown = compare("a", before, "b", report(processes=[process_report(step=None)]))
    assert unknown.gain.real_share is None
    text = text_of(unknown)
    assert "No step was found after" in text
    assert "a step" not in text


def test_worse_is_called_worse() -> None:
    before, after = (
        report(processes=[process_report(step=FAST)]),
        report(processes=[process_report(step=SLOW)]),
    )
    answer = compare("a", before, "b", after)
    assert answer.gain.real_share is not None
    assert answer.gain.real_share < 0
    assert "more)" in text_of(answer)


def test_two_healthy_runs_without_a_gpu_process_say_so() -> None:
    answer = compare("a", report(processes=[]), "b", report(processes=[], **lossy()))
    text = text_of(answer)
    for part in (
        "no CUDA process",
        "No problem found, before or after.",
        "12 records dropped",
        "No time was accounted",
    ):
        assert part in text, part
