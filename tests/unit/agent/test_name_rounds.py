"""Names are looked for when they are missing, for a moment, and less and less often in vain."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ingero.agent.launched_kernels import FUTILE_WAIT_NS, LAUNCHES, LONGEST_NS, ROUND_NS, WAITS_NS, NameRounds
from ingero.attach.probes import BY_NAME
from ingero.attach.session import Attached, Session
from ingero.attach.shapes import Point

from .fakes import Links

FILE = (1, 2)


class Kernel:
    """Remembers what it was told, and attaches by keeping a list."""

    name = "session"

    def __init__(self) -> None:
        self.told: list[int] = []
        self.attached: list[tuple[str, list[int]]] = []
        self.links: list[Links] = []
        self.refuse = False

    def look_for_names(self, number: int) -> None:
        self.told.append(number)

    def attach(self, path: str, points: Sequence[Point]) -> Links:
        if self.refuse:
            raise OSError(1, "Operation not permitted")
        self.attached.append((path, [point.op for point in points]))
        self.links.append(Links())
        return self.links[-1]


def point(name: str) -> tuple[Point, Any]:
    number, row = BY_NAME[name]
    return Point(number * 16, number), row


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def targets() -> Any:
    library = SimpleNamespace(file=FILE, path_for_kernel="/proc/7/map_files/a-b")
    live = {pid: SimpleNamespace(files={FILE: library}) for pid in (7, 8)}
    return SimpleNamespace(live=live, warnings={})


@pytest.fixture
def rounds(kernel: Kernel, targets: Any) -> NameRounds:
    hot = [point("cudaLaunchKernel"), point("cudaLaunchHostFunc"), point("cudaMemcpyAsync")]
    session = Session(kernel)  # type: ignore[arg-type]
    session.files[FILE] = Attached("libcudart.so.12", "runtime", [], hot)
    return NameRounds(kernel, session, targets, lambda: kernel)  # type: ignore[arg-type, return-value]


def test_nothing_is_probed_while_nothing_is_missing(rounds: NameRounds, kernel: Kernel) -> None:
    rounds.step(0, set(), {})
    assert (kernel.told, kernel.attached) == ([], [])


def test_a_round_probes_the_launches_of_each_runtime_once_and_ends(
    rounds: NameRounds, kernel: Kernel
) -> None:
    rounds.step(0, {7, 8}, {})
    assert kernel.attached == [("/proc/7/map_files/a-b", [BY_NAME["cudaLaunchKernel"][0]])]
    rounds.step(ROUND_NS - 1, {7, 8}, {})
    assert kernel.links[0].held
    rounds.step(ROUND_NS, {7, 8}, {})
    assert not kernel.links[0].held
    assert (kernel.told, rounds.on) == ([1, 0], False)


def test_a_round_in_on_periods_is_on_with_them_and_lasts_until_it_has_seen_enough(
    rounds: NameRounds, kernel: Kernel
) -> None:
    """Or a job whose launches are watched for 3 % of the time paid for all of them for two seconds."""
    rounds._session.set_apart(LAUNCHES, {}, 0)
    rounds._session.take_off()
    rounds.step(0, {7}, {})
    assert kernel.attached == []
    rounds._session.put_on({})
    assert [links.held for links in kernel.links] == [True]
    rounds._session.take_off()
    assert [links.held for links in kernel.links] == [False]
    rounds._session.put_on({})
    rounds.step(ROUND_NS, {7}, {}, watched_share=0.25)
    assert rounds.on
    rounds.step(4 * ROUND_NS, {7}, {}, watched_share=0.25)
    assert not rounds.on
    assert not any(links.held for links in kernel.links)


def test_a_round_ends_however_little_it_sees(rounds: NameRounds) -> None:
    rounds.step(0, {7}, {})
    rounds.step(LONGEST_NS, {7}, {}, watched_share=0.0)
    assert not rounds.on


def test_a_round_that_cannot_be_put_on_again_ends(rounds: NameRounds, kernel: Kernel) -> None:
    rounds.step(0, {7}, {})
    rounds._session.set_apart(LAUNCHES, {}, 0)
    rounds._session.take_off()
    kernel.refuse = True
    rounds._session.put_on({})
    rounds.step(1, {7}, {})
    assert not rounds.on


def test_rounds_that_teach_come_again_ever_later(rounds: NameRounds, kernel: Kernel) -> None:
    now = 0
    for taught, wait in enumerate((*WAITS_NS, WAITS_NS[-1])):
        rounds.step(now, {7}, {7: taught})
        assert rounds.on
        now += ROUND_NS
        rounds.step(now, {7}, {7: taught + 1})
        rounds.step(now + wait - 1, {7}, {7: taught + 1})
        assert not rounds.on
        now += wait
    assert len(kernel.attached) == len(WAITS_NS) + 1


def test_a_round_that_taught_nothing_is_not_soon_repeated(rounds: NameRounds) -> None:
    rounds.step(0, {7}, {7: 3})
    rounds.step(ROUND_NS, {7}, {7: 3})
    rounds.step(FUTILE_WAIT_NS - 1, {7}, {7: 3})
    assert not rounds.on
    rounds.step(FUTILE_WAIT_NS, {7}, {7: 3})
    assert rounds.on


def test_another_process_does_not_wait_for_the_first(rounds: NameRounds, kernel: Kernel) -> None:
    rounds.step(0, {7}, {})
    rounds.step(ROUND_NS, {7, 8}, {})
    rounds.step(ROUND_NS + 1, {7, 8}, {})
    assert rounds.on
    rounds.forget({7})
    rounds.close()
    assert not any(links.held for links in kernel.links)
    assert kernel.told == [1, 0, 2, 0]


def test_a_process_without_a_runtime_to_probe_is_left_alone(
    rounds: NameRounds, kernel: Kernel, targets: Any
) -> None:
    targets.live[7].files = {}
    rounds.step(0, {7, 9}, {})
    assert (kernel.attached, rounds.on) == ([], False)


def test_a_refusal_is_told_once_and_leaves_nothing_on(
    rounds: NameRounds, kernel: Kernel, targets: Any
) -> None:
    kernel.refuse = True
    rounds.step(0, {7}, {})
    assert (rounds.on, kernel.told) == (False, [1, 0])
    assert "not permitted" in targets.warnings["names"]
    rounds.step(FUTILE_WAIT_NS * 2, {7}, {})
    assert kernel.told == [1, 0]
