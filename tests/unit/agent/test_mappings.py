"""News of mappings where the kernel tells none."""

from __future__ import annotations

import pytest

from ingero.agent import mappings


class Refused:
    def __init__(self, cores: list[int]) -> None:
        raise PermissionError(13, "Permission denied")


def test_a_kernel_that_refuses_costs_the_news_and_not_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mappings._shim, "MappingWatch", Refused)
    warnings: dict[str, str] = {}
    watch = mappings.watch([0], warnings)
    assert (watch.fds(), watch.read()) == ([], [])
    assert "perf_event_paranoid" in warnings["mappings"]
    watch.close()


def test_without_news_everybody_is_looked_at_again_and_again() -> None:
    now = 0.0
    watch = mappings.Untold(lambda: now)
    assert watch.lost() == 0
    now = mappings.EVERY_S
    assert watch.lost() == 1
    now = 10 * mappings.EVERY_S
    assert watch.lost() == 10
