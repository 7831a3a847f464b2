"""Time a feeding thread lost, with the place where it was really lost.

A wait for another thread is followed along whoever ended it: what that one did
meanwhile is the cause. `bucket` is the bucket of the last thread on that way.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Part:
    """A process with a part in it."""

    pid: int
    comm: str
    ns: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Some nanoseconds in which the GPU got nothing, or less, and why."""

    bucket: str
    ns: int
    pid: int  # where it was lost
    tid: int
    comm: str
    via: tuple[str, ...] = ()  # names of the threads in between, the victim's own left out
    who: tuple[Part, ...] = ()  # whose fault, where somebody else has one
    # nobody, quota, own (the job itself), others, neighbours (in another container), unknown;
    # in a whole account also agent (us), demand (nobody wants anything) and feeder (another
    # thread that feeds the GPU)
    whose: str = "nobody"
    gil: bool = False
    waits: int = 0  # how many; 0: not counted
    rare: bool = False  # not even in every tenth iteration
    what: str = ""  # of time on a core, or of waits for the GPU: the kind of call, or gc

    @property
    def direct(self) -> bool:
        return not self.via


@dataclass(slots=True)
class SliceLedger:
    """Two seconds of a victim."""

    number: int
    wall_ns: int
    ns: dict[str, int]
    gap: dict[str, int]
    system_ns: int = 0  # of the time on a core: inside the kernel
    lost: list[Lost] = field(default_factory=list)
    cold: bool = False
    starting: bool = False  # the process had not yet begun to give the GPU work second after second
    ending: bool = False  # the job's last second of steps, or what came after it
    lossy: bool = False  # records were lost meanwhile: nothing may be concluded from absence

    @property
    def gap_ns(self) -> int:
        return sum(self.gap.values())

    def lost_ns(self, *buckets: str) -> int:
        return sum(each.ns for each in self.lost if each.bucket in buckets)
