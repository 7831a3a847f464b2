"""Seconds as columns."""

from __future__ import annotations

from ingero.model.live import Second
from ingero.serve.tui import chart
from tests.builders import finding

SECOND = 1_000_000_000


def seconds(*times: dict[str, int]) -> list[Second]:
    return [Second(at * SECOND, SECOND, time_ns) for at, time_ns in enumerate(times)]


def test_every_second_is_a_column_that_is_filled_to_the_top() -> None:
    cells = chart.columns(seconds({"gpu_wait": 3, "runqueue": 1}, {"runqueue": 1}), 3)
    assert [row.plain for row in chart.stacked(cells, 4)] == [" ##", " █#", " █#", " █#"]


def test_while_there_are_few_seconds_each_is_several_columns_wide() -> None:
    few = seconds({"gpu_wait": 1}, {"runqueue": 1})
    assert chart.stacked(chart.columns(few, 7), 1)[0].plain == " ███###"
    assert chart.stacked(chart.columns(few, 100), 1)[0].plain.strip() == "████####"


def test_the_newest_second_is_on_the_right_and_a_missing_one_is_a_gap() -> None:
    known = [each for each in seconds({"sleep": 1}, {}, {"sleep": 1}) if each.time_ns]
    assert chart.stacked(chart.columns(known, 4), 1)[0].plain == " · ·"


def test_only_the_last_seconds_are_shown_where_there_is_room_for_fewer() -> None:
    cells = chart.columns(seconds(*[{"sleep": 1}] * 9, {"lost": 1}), 2)
    assert chart.stacked(cells, 1)[0].plain == "·x"


def test_a_line_goes_from_nothing_to_the_most() -> None:
    assert chart.line([0, 5, 10, None]).plain == "▁▅█ "
    assert chart.line([0.5], most=1.0).plain == "▅"
    assert chart.line([None, None]).plain == "  "


def test_seconds_in_which_a_finding_held_are_marked() -> None:
    cells = chart.columns(seconds(*[{"sleep": 1}] * 4), 4)
    held = finding(episodes=[(1 * SECOND, 3 * SECOND)])
    assert chart.troubled(cells, [held]).plain == " !! "
