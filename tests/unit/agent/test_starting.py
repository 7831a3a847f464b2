"""A trace that is asked to stop while it starts does not begin."""

from __future__ import annotations

import pytest

from ingero.agent.starting import Starting, StoppedError
from ingero.model.live import QuietSurface


class Telling(QuietSurface):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def starting(self, doing: str) -> None:
        self.told.append(doing)


def test_every_step_is_told_and_nothing_of_it_stays() -> None:
    surface = Telling()
    starting = Starting(surface)
    with starting.told():
        starting.step("loading the probes")
        starting.attaching(1)
        starting.attaching(3)
    assert surface.told == ["loading the probes", "attaching to 1 process", "attaching to 3 processes", ""]


def test_a_stop_between_two_steps_ends_it_there() -> None:
    surface = Telling()
    starting = Starting(surface)
    starting.step("loading the probes")
    surface.stop_requested.set()
    with pytest.raises(StoppedError), starting.told():
        starting.step("attaching to the kernel")
    assert surface.told == ["loading the probes", ""]


def test_a_stop_during_the_last_step_counts() -> None:
    surface = Telling()
    starting = Starting(surface)
    with pytest.raises(StoppedError), starting.told():
        surface.stop_requested.set()
