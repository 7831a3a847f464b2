"""How long a question may hold up whoever answers, and what is left alone because it did.

All waits for things of one user get a tenth of the time together, so hundreds of frozen processes cost no
more than a few, and whoever freezes theirs takes the time of nobody else. All users together get half.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from ingero.discover import processes

HELD_UP_S = 1.0  # waited for something that is no core: the longest seen of a cold disk is a tenth of that
LEAST_S = 0.05
SHARE, SHARE_OF_ALL = 10, 2  # one second in so many
OF_ALL_S = 5.0
AVOID_S, LONGEST_AVOID_S = 30.0, 600.0
MAX_AVOIDED = MAX_OWNERS = 4096
NOBODY = -1  # whose a file is would have to be read from its file system
_PROCESS = re.compile(r"/proc/(\d{1,10})/")

About = int | str | bytes


class Allowance:
    """Seconds, up to so many; one comes back in `share`."""

    def __init__(self, most_s: float, share: int, now: float) -> None:
        self._most_s, self._share = most_s, share
        self._left_s, self._since = most_s, now

    def left_s(self, now: float) -> float:
        self._left_s = min(self._most_s, self._left_s + (now - self._since) / self._share)
        self._since = now
        return self._left_s

    def spend(self, seconds: float) -> None:
        self._left_s -= seconds


@dataclass(frozen=True, slots=True)
class Avoided:
    """A process of that start, or a file, until then."""

    until: float
    pause_s: float
    start_ns: int


class Patience:
    """For whom how long is waited."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of_all = Allowance(OF_ALL_S, SHARE_OF_ALL, clock())
        self._of_owners: dict[int, Allowance] = {}
        self._avoided: dict[About, Avoided] = {}

    def of(self, about: About) -> float:
        """Seconds that a question about this may wait for something other than a core."""
        now = self._clock()
        left = min(HELD_UP_S, self._of_all.left_s(now), self._of(_owner(about)).left_s(now))
        return max(LEAST_S, left)

    def spend(self, about: About, seconds: float) -> None:
        if seconds:
            self._of_all.spend(seconds)
            self._of(_owner(about)).spend(seconds)

    def _of(self, owner: int) -> Allowance:
        if owner not in self._of_owners:
            if len(self._of_owners) >= MAX_OWNERS:
                del self._of_owners[next(iter(self._of_owners))]
            self._of_owners[owner] = Allowance(HELD_UP_S, SHARE, self._clock())
        return self._of_owners[owner]

    def avoids(self, about: About) -> bool:
        """It held up a reader lately; another process of that number did not."""
        known = self._avoided.get(about)
        if known is None:
            return False
        if known.start_ns != _start_ns(about):
            del self._avoided[about]
            return False
        return self._clock() < known.until

    def avoid(self, about: About, patience_s: float) -> None:
        """It held up a reader that long: twice as long as the last time, if it had all the time there is."""
        start_ns, known = _start_ns(about), self._avoided.pop(about, None)
        pause_s = AVOID_S
        if known and known.start_ns == start_ns:
            pause_s = known.pause_s * (2 if patience_s >= HELD_UP_S else 1)
        pause_s = min(pause_s, LONGEST_AVOID_S)
        if len(self._avoided) >= MAX_AVOIDED:
            del self._avoided[next(iter(self._avoided))]
        self._avoided[about] = Avoided(self._clock() + pause_s, pause_s, start_ns)

    def forgive(self, about: About) -> None:
        self._avoided.pop(about, None)


def _owner(about: About) -> int:
    """The user whose it is. What the kernel answers from its own memory is asked, and nothing else."""
    if not isinstance(about, int):
        found = _PROCESS.match(about if isinstance(about, str) else about.decode(errors="replace"))
        if not found:
            return NOBODY
        about = int(found[1])
    return max(processes.user_ids(about), default=NOBODY)


def _start_ns(about: About) -> int:
    stat = processes.read_stat(about) if isinstance(about, int) else None
    return stat.start_ns if stat else 0
