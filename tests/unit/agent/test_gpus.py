"""The cards while tracing: what is told, to whom, and who on them is looked up."""

from __future__ import annotations

import pytest

from ingero.agent import gpus
from ingero.agent.bystanders import who_mattered
from ingero.agent.gpus import Gpus
from ingero.model.gpus import GpuNews, GpuProcess
from ingero.model.window import Window

TROUBLE = GpuNews(trouble=("NVML: \x1b[2JDriver Not Loaded",))


def test_cards_that_were_left_out_tell_nothing_and_cost_nothing() -> None:
    cards = Gpus(wanted=False)
    cards.start()
    assert cards.take() == GpuNews()
    cards.close()


def test_trouble_is_recorded_for_the_machine_and_shown_without_control_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpus, "driver_version", lambda: "580.1")
    warnings: dict[str, str] = {}
    (told,) = Gpus(wanted=False).not_watched(TROUBLE, warnings)
    assert (told.pid, told.what) == (0, "gpu")
    assert list(warnings.values()) == ["GPU counters: NVML: Driver Not Loaded"]


def test_where_there_is_no_driver_nobody_is_warned_of_its_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "driver_version", lambda: None)
    warnings: dict[str, str] = {}
    assert Gpus(wanted=False).not_watched(TROUBLE, warnings)
    assert not warnings


def test_whoever_is_on_a_card_is_looked_up() -> None:
    window = Window(0, 1)
    window.gpus = GpuNews(processes=(GpuProcess(0, 1, 4242, "inference"),))
    assert who_mattered(window) == [4242]
