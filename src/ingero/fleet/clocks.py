"""How far the clock of another node is from ours, and how sure that is.

One exchange: we note our clock, the node tells its own, we note ours again. The node's
word came from somewhere between, so the middle is wrong by half the round trip at most,
however the way there and the way back differ. The exchange with the least delay
therefore counts, and its half is the bound. Pure arithmetic; nobody is asked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST_EXCHANGES = 3
WARN_NS = 10_000_000  # NTP keeps nodes of one network well below this


@dataclass(frozen=True, slots=True)
class Exchange:
    """Unix-epoch nanoseconds; `told_ns` by the other clock, the others by ours."""

    sent_ns: int
    told_ns: int
    received_ns: int

    @property
    def delay_ns(self) -> int:
        return self.received_ns - self.sent_ns


@dataclass(frozen=True, slots=True)
class Offset:
    """The node's clock minus ours: positive where the node is ahead."""

    offset_ns: int
    error_ns: int  # the truth lies within this
    at_ns: int  # by our clock
    exchanges: int

    @property
    def certain(self) -> bool:
        """The clocks surely differ: an offset within its own error may be none at all."""
        return abs(self.offset_ns) > self.error_ns

    @property
    def shift_ns(self) -> int:
        """What to add to the node's instants to have them by our clock."""
        return -self.offset_ns if self.certain else 0

    @property
    def left_ns(self) -> int:
        """By how much a shifted instant may still be wrong."""
        return self.error_ns if self.certain else abs(self.offset_ns) + self.error_ns


@dataclass(frozen=True, slots=True)
class Drift:
    """How much faster the node's clock runs than ours, in parts of one."""

    rate: float
    error: float

    @property
    def certain(self) -> bool:
        return abs(self.rate) > self.error


def offset_of(exchanges: Iterable[Exchange]) -> Offset | None:
    """From the exchange with the least delay; None where there was none that makes sense.

    Ours may have been set between two readings: an exchange that took no time, or less,
    says nothing.
    """
    sound = [each for each in exchanges if each.delay_ns > 0]
    if not sound:
        return None
    best = min(sound, key=lambda each: each.delay_ns)
    middle_ns = best.sent_ns + best.delay_ns // 2
    return Offset(best.told_ns - middle_ns, (best.delay_ns + 1) // 2, middle_ns, len(sound))


def drift_between(first: Offset, last: Offset) -> Drift | None:
    """From two offsets some time apart; None where no time passed."""
    elapsed_ns = last.at_ns - first.at_ns
    if elapsed_ns <= 0:
        return None
    return Drift(
        (last.offset_ns - first.offset_ns) / elapsed_ns, (last.error_ns + first.error_ns) / elapsed_ns
    )


def better(offsets: Sequence[Offset | None]) -> Offset | None:
    """The one with the least error."""
    known = [each for each in offsets if each is not None]
    return min(known, key=lambda each: each.error_ns) if known else None


@dataclass(frozen=True, slots=True)
class Step:
    """A node's wall clock was set while it recorded, as the recording notes it."""

    at_ns: int  # the first instant recorded after it
    delta_ns: int
    adopted: bool  # the recording's times jumped with it


@dataclass(frozen=True, slots=True)
class Stretch:
    """Recorded instants from here on, up to the next stretch, get this added."""

    from_ns: int
    shift_ns: int


def stretches(steps: Sequence[Step], offset: Offset | None) -> list[Stretch]:
    """What recorded instants need to be by our clock.

    The offset is that of the node's wall clock now. A recording follows the wall clock as it
    was then, through a mapping that ignores steps back: so each stretch between two steps
    lacks what the wall clock moved in all, less what the mapping had moved by then.
    """
    wall_ns = mapped_ns = 0
    begins, mapped = [0], [0]
    for step in sorted(steps, key=lambda each: each.at_ns):
        wall_ns += step.delta_ns
        mapped_ns = wall_ns if step.adopted else mapped_ns
        begins.append(step.at_ns)
        mapped.append(mapped_ns)
    shift_ns = offset.shift_ns if offset else 0
    return [Stretch(begin, shift_ns + wall_ns - then) for begin, then in zip(begins, mapped, strict=True)]


def error_after(offset: Offset, drift: Drift | None, age_ns: int) -> int | None:
    """By how much an instant of so long ago may be wrong; None where the drift was not measured.

    A rate seen for some seconds is not subtracted from what happened an hour ago: a clock that is
    being corrected right now ran otherwise then. It widens the error instead.
    """
    if drift is None:
        return None
    return offset.left_ns + round((abs(drift.rate) + drift.error) * max(0, age_ns))
