"""Verdicts in figures, and the page that shows them."""

from __future__ import annotations

from benchmarks.truth.judge import INCOMPLETE, RIGHT, SILENT, WRONG, Verdict
from benchmarks.truth.page import failures, matrix, page
from benchmarks.truth.play import mean_step_ms
from benchmarks.truth.score import NOTHING, confusion, score

HIGH = "HIGH"
RIGHT_ONE = Verdict("a", 1, ("gc-pause",), (("gc-pause", HIGH),), RIGHT, culprit=True, gain=True)
WRONG_ONE = Verdict("b", 7, ("disk-wait",), (("gc-pause", HIGH),), WRONG, culprit=False)
SILENT_ONE = Verdict("c", 8, ("disk-wait",), (), SILENT)
HALF = Verdict("d", 9, ("disk-wait", "gc-pause"), (("gc-pause", HIGH),), INCOMPLETE)
FINE = Verdict("e", 1, (), (), RIGHT)
LOW_ONE = Verdict("f", 1, (), (("gc-pause", "LOW"),), RIGHT)
ALARM = Verdict("g", 5, (), (("gc-pause", "LOW"), ("disk-wait", "MEDIUM")), WRONG)
ALL = [RIGHT_ONE, WRONG_ONE, SILENT_ONE, HALF, FINE, LOW_ONE, ALARM]


def test_a_wrong_answer_costs_twice_what_silence_costs() -> None:
    assert score([RIGHT_ONE, SILENT_ONE]).points == 0.5
    assert score([RIGHT_ONE, WRONG_ONE]).points == 0.0
    assert score([FINE]).points is None


def test_the_figures_count_what_they_say() -> None:
    found = score(ALL)
    assert (found.faults, found.healthy, found.alarms, found.lows) == (4, 3, 1, 1)
    assert found.outcomes == {RIGHT: 1, WRONG: 1, SILENT: 1, INCOMPLETE: 1}
    assert found.culprits == (1, 2)
    assert found.gains == (1, 1)


def test_the_matrix_has_what_was_done_against_what_was_said_first() -> None:
    found = confusion(ALL)
    assert found["disk-wait"] == {"gc-pause": 1, NOTHING: 1}
    assert found["disk-wait + gc-pause"] == {"gc-pause": 1}
    assert found[NOTHING] == {NOTHING: 2, "disk-wait": 1}  # a LOW finding is no alarm
    lines = list(matrix(ALL))
    assert lines[0] == f"| done \\ said first | disk-wait | gc-pause | {NOTHING} |"
    assert "| gc-pause |  | **1** |  |" in lines
    assert len({line.count("|") for line in lines}) == 1


def test_every_failure_is_listed_with_its_seed() -> None:
    listed = list(failures(ALL))
    assert [line.split(",")[0] for line in listed] == ["- b", "- c", "- d", "- g"]
    assert "- b, seed 7: wrong: told gc-pause HIGH; culprit not named" in listed
    assert "- g, seed 5: false alarm: told gc-pause LOW, disk-wait MEDIUM" in listed


def test_a_promise_not_kept_is_listed_with_both_step_times() -> None:
    off = Verdict("a", 3, ("gc-pause",), (("gc-pause", HIGH),), RIGHT, None, False, 5.0, 10.0, 20.0)
    assert list(failures([off])) == ["- a, seed 3: promised 5.0 ms a step, the twin has 10.0"]


def test_the_page_keeps_the_sets_apart_and_says_what_could_not_be_run() -> None:
    text = page({"dev": [RIGHT_ONE], "held-out": [WRONG_ONE]}, {"cores": "2"}, "now", [4], ["x: no disk"])
    dev, held_out = text.index("## Cases: dev"), text.index("## Cases: held-out")
    assert dev < text.index("| faults: right | 1 of 1 (100%) |") < held_out
    assert held_out < text.index("| faults: right | 0 of 1 (0%) |")
    assert "- x: no disk" in text
    assert "## Cases: held-out" not in page({"dev": [RIGHT_ONE], "held-out": []}, {}, "now", [4], [])


def test_the_step_time_is_that_of_the_steps_within() -> None:
    ends_ns = [0, 10_000_000, 20_000_000, 60_000_000, 100_000_000, 500_000_000]
    assert mean_step_ms(ends_ns, 20_000_000, 100_000_000) == 40.0
    assert mean_step_ms(ends_ns, 200_000_000, 600_000_000) is None
