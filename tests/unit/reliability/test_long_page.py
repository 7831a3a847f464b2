"""The line that says when the long tests were last run."""

from __future__ import annotations

import pytest

from benchmarks import reliability
from benchmarks.long_tests import section

REPORT = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest"
errors="{errors}" failures="{failures}" skipped="{skipped}" tests="7" time="431.2"
timestamp="2026-11-18T16:40:00.123456+00:00" hostname="here"/></testsuites>"""


@pytest.mark.parametrize(
    ("errors", "failures", "skipped", "said"),
    [
        (0, 0, 0, "7 tests in 7 minutes, 0 failed."),
        (1, 2, 0, "7 tests in 7 minutes, 3 failed."),
        (0, 0, 2, "5 tests in 7 minutes, 0 failed, 2 skipped."),
    ],
)
def test_the_line_says_when_how_many_and_what_failed(
    errors: int, failures: int, skipped: int, said: str
) -> None:
    report = REPORT.format(errors=errors, failures=failures, skipped=skipped)
    assert section(report) == f"Last run on 2026-11-18: {said}"


def test_the_page_has_room_for_it() -> None:
    page = reliability.PAGE.read_text(encoding="utf-8")
    assert "Last run on" in reliability.put(
        page, "test-long", section(REPORT.format(errors=0, failures=0, skipped=0))
    )
