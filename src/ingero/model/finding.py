"""A finding: what is slow, why, through whose fault, what fixing it wins, how sure we are.

These types are the contract of `explain --json`: names and meaning are stable.
Instants are Unix-epoch nanoseconds, durations nanoseconds, shares 0 to 1.
Unknown is None, never 0.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

# A finding about time is worth saying from this share of the victim's wall time on.
SEVERITY_SHARES = (("CRITICAL", 0.50), ("HIGH", 0.25), ("MEDIUM", 0.10), ("LOW", 0.03))


class Severity(StrEnum):
    """Worst first; how a list of findings is sorted."""

    CRITICAL = "CRITICAL"
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


def severity_of(wall_share: float) -> Severity | None:
    """From wall time lost; None: not worth saying."""
    for name, least in SEVERITY_SHARES:
        if wall_share >= least:
            return Severity(name)
    return None


class Victim(msgspec.Struct, frozen=True):
    pid: int
    tid: int | None
    comm: str
    container: str | None = None  # namespace/pod, container id or job, where it is in one


class Effect(msgspec.Struct, frozen=True):
    """What the user feels: `op` is an operation's name, or `step` for the whole iteration."""

    op: str | None
    usual_ns: int | None
    now_ns: int | None
    excess_ns: int | None
    wall_share: float | None


class Who(msgspec.Struct, frozen=True):
    """A process with a part in it; ns: for how long."""

    pid: int | None
    comm: str
    ns: int
    container: str | None = None


class Proof(msgspec.Struct, frozen=True):
    """One piece of evidence; `sql` recomputes its number from the database."""

    text: str
    sql: str | None = None
    event_ids: list[str] = []


class Cause(msgspec.Struct, frozen=True):
    """A part of the excess. `via`: the threads the wait was followed along, victim first."""

    bucket: str
    ns: int
    share: float
    who: list[Who] = []
    evidence: list[Proof] = []
    via: list[str] = []


class SourceLine(msgspec.Struct, frozen=True):
    file: str
    line: int
    function: str


class StackFrame(msgspec.Struct, frozen=True):
    kind: str  # python, native
    function: str | None
    file: str | None = None
    line: int | None = None
    module: str | None = None


class Gain(msgspec.Struct, frozen=True):
    """What fixing it wins, of the time the finding covers."""

    ns: int
    share: float


class Fix(msgspec.Struct, frozen=True):
    """`command` is for a shell, as it stands; `code` for the job's program."""

    text: str
    command: str | None = None
    code: str | None = None
    pids: list[int] = []  # whom the command is about
    if_ended: str | None = None  # the command when they are gone: how to find them


class LabelRange(msgspec.Struct, frozen=True):
    """Values of a label the victim gave while the finding lasted, from the first to the last."""

    key: str
    first: str
    last: str
    count: int  # different ones


# Something that is or was so. It stays told for as long as its recording is there, whatever became of the
# job; the others are about time, and are judged anew.
STATES = frozenset(
    {
        "cuda-error", "cuda-oom", "gpu-fault", "oom-kill", "gpu-memory-leak", "version-mismatch",
        "pod-restart", "nccl-hang", "graph-trouble",
    }
)  # fmt: skip


def finding_id(node: str, kind: str, pid: int, recorded_ns: int) -> str:
    """The same wherever a finding of a recording, begun then, is shown; views.py spells it in SQL."""
    return f"{node}:{kind}:{pid}:{recorded_ns // 1_000_000_000}"


class Finding(msgspec.Struct, frozen=True):
    id: str
    kind: str
    severity: Severity
    title: str
    first_ns: int
    last_ns: int
    confidence: float
    victim: Victim
    effect: Effect
    causes: list[Cause]
    explained_share: float | None
    source: SourceLine | None = None
    stack: list[StackFrame] = []
    gain: Gain | None = None
    fix: list[Fix] = []
    evidence: list[Proof] = []  # of a state, which has no excess and so no causes
    who: list[Who] = []  # whose fault a state is
    time: dict[str, int] = {}  # where the victim thread's time went meanwhile; sums to all of it
    episodes: list[tuple[int, int]] = []  # when: from and to of each
    labels: list[LabelRange] = []  # what the job said it was doing then

    @property
    def node(self) -> str:
        """The machine it happened on."""
        return self.id.rsplit(":", 3)[0]

    @property
    def key(self) -> str:
        """Which findings are the same one, seen again."""
        return f"{self.kind}:{self.victim.pid}"


class Unexplained(msgspec.Struct, frozen=True):
    """Slower than usual, and we cannot prove why."""

    victim: Victim
    first_ns: int
    last_ns: int
    excess_ns: int
    wall_share: float
    text: str
    node: str | None = None  # where the report is of several
