"""What is kept of the capabilities we have."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingero.privileges import KEPT, SYS_ADMIN, paranoid, wanted

EVERYTHING = (1 << 41) - 1


def test_root_keeps_what_tracing_needs() -> None:
    assert wanted(EVERYTHING) == sum(1 << bit for bit in KEPT.values())


def test_nothing_is_kept_that_is_not_held() -> None:
    held = 1 << KEPT["CAP_BPF"] | 1 << KEPT["CAP_PERFMON"] | 1 << KEPT["CAP_CHECKPOINT_RESTORE"]
    assert wanted(held) == held


def test_perf_uprobes_need_the_old_one() -> None:
    assert wanted(EVERYTHING, perf=True) >> SYS_ADMIN & 1


def test_the_old_one_stays_where_the_narrow_ones_are_missing() -> None:
    held = EVERYTHING & ~(1 << KEPT["CAP_BPF"])
    assert wanted(held) >> SYS_ADMIN & 1


@pytest.mark.parametrize(
    ("text", "asked"), [("3\n", True), ("4\n", True), ("2\n", False), ("-1\n", False), ("", False)]
)
def test_a_kernel_that_refuses_perf_events_is_known_by_its_setting(
    text: str, asked: bool, tmp_path: Path
) -> None:
    (tmp_path / "paranoid").write_text(text)
    assert paranoid(tmp_path / "paranoid") == asked
    assert not paranoid(tmp_path / "none")
