"""Who straggles: everybody against the median of its peers. Pure: what was told in, standings out.

Peers are the ranks of one job; processes without a rank are compared with those of the same cluster, GPU
model and phase. In a job whose ranks wait for each other all have one pace, that of the slowest: there
the one that holds the others up is the one that waits least, so its own time tells (the part
of its time that is not waiting for the GPU or the network), not its pace.

A rank is one process. A node that has all of a job's ranks has a job of its own; a rank that several nodes
claim is not compared, because nobody knows whose it is, and no node can outvote the others.

A limit lies as far from the median as chance does not reach: some median absolute deviations, and
never less than a tenth. Below a quorum nothing is said. Straggling begins and ends after some rounds,
and ends only well within the limit, so that nobody flickers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from ingero.fleet.limits import (
    HIGH_IS_BAD,
    ROUNDS,
    WAITING,
    is_beyond,
    is_ranked,
    is_well_within,
    own_share,
)  # fmt: skip
from ingero.model.fleet import Advice, FindingHealth, Straggler
from ingero.units import format_share

QUORUM = 4  # that were heard, of a group
QUORUM_SHARE = 0.5  # of the ranks of a job
DEVIATIONS = 4.0
MAD_TO_SIGMA = 1.4826  # of a normal distribution
LEAST = {"pace": 0.10, "own-time": 0.10, "clock": 0.10}  # of the median; of own time: of all time
# Not met for so long it is silent, which is another thing. Agents of a collector that was away come back
# within half a minute each, and nobody's straggling ends because the collector did.
ABSENT_NS = 90_000_000_000
BUSY = 0.5  # of the time: a clock is compared while its GPU works
SEVERITIES = ("CRITICAL", "HIGH", "MEDIUM", "LOW")


@dataclass(frozen=True, slots=True)
class Member:
    """One process, or one GPU, in its last round."""

    cluster: str
    node: str
    round: tuple[str, int]  # run and number: a round counts once
    pid: int | None = None
    gpu: int | None = None
    model: str = ""
    job: str = ""  # of the batch system, else the digest of its command
    rank: int | None = None
    world_size: int | None = None
    bound_by: str = ""
    steps_per_s: float | None = None
    usual_steps_per_s: float | None = None
    busy_share: float | None = None
    clock_hz: float | None = None
    time_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, int | None, int | None]:
        return self.cluster, self.node, self.pid, self.gpu

    @property
    def phase(self) -> str:
        """Training steps, serving requests, or neither."""
        if self.bound_by == "requests":
            return "serving"
        return "stepping" if self.steps_per_s else "working"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a member stands among its peers by one measure."""

    member: Member
    measure: str
    value: float
    median: float
    limit: float
    peers: int
    group: str

    @property
    def beyond(self) -> bool:
        return is_beyond(self.measure, self.value, self.limit)

    @property
    def well_within(self) -> bool:
        return is_well_within(self.measure, self.value, self.limit, self.median)

    @property
    def key(self) -> str:
        thing = f"gpu {self.member.gpu}" if self.member.pid is None else str(self.member.pid)
        return f"{self.measure}:{thing}"


Measured = tuple[Member, float]


def standings(members: Iterable[Member]) -> list[Standing]:
    """All who can be compared with somebody."""
    groups: dict[tuple[str, ...], list[Measured]] = defaultdict(list)
    for member in members:
        for measure, value, group in _measures(member):
            groups[measure, *group].append((member, value))
    return [
        each
        for (measure, *group), found in groups.items()
        for job in ([found] if len(group) < 3 else _jobs(found, int(group[2])))
        for each in _judged(measure, group, job)
    ]


def _measures(member: Member) -> list[tuple[str, float, tuple[str, ...]]]:
    if member.pid is None:
        if member.clock_hz is None or (member.busy_share or 0.0) < BUSY:
            return []
        return [("clock", member.clock_hz, (member.cluster, f"GPUs of model {member.model}"))]
    found: list[tuple[str, float, tuple[str, ...]]] = []
    if is_ranked(member.rank, member.world_size, member.job):
        ranks = member.cluster, f"ranks of {member.job}", str(member.world_size)
        if (own := own_share(member.time_s)) is not None:
            found.append(("own-time", own, ranks))
        if member.steps_per_s is not None:
            found.append(("pace", member.steps_per_s, ranks))
    elif member.steps_per_s is not None and member.usual_steps_per_s:
        # Other jobs have other steps: only how they do against their own past can be compared.
        others = member.cluster, f"{member.model or 'unknown'} jobs, {member.phase}"
        found.append(("pace", member.steps_per_s / member.usual_steps_per_s, others))
    return found


def _jobs(found: list[Measured], size: int) -> list[list[Measured]]:
    """Ranks that go by one name, as jobs with one process for each rank."""
    nodes: dict[str, dict[int, Measured]] = defaultdict(dict)
    for each in sorted(found, key=lambda one: sum(one[0].time_s.values())):  # of two, the one that works
        rank = each[0].rank
        if rank is not None and rank < size:
            nodes[each[0].node][rank] = each
    shared = [ranks for ranks in nodes.values() if len(ranks) < size]
    claims = Counter(rank for ranks in shared for rank in ranks)
    alone = [list(ranks.values()) for ranks in nodes.values() if len(ranks) == size]
    return [*alone, [one for ranks in shared for rank, one in ranks.items() if claims[rank] == 1]]


def _judged(measure: str, group: list[str], found: list[Measured]) -> list[Standing]:
    expected = int(group[2]) if len(group) > 2 else 0
    if len(found) < max(min(QUORUM, expected or QUORUM), 3, QUORUM_SHARE * expected):
        return []
    values = [value for _, value in found]
    middle = median(values)
    mad = median(abs(value - middle) for value in values)
    least = LEAST[measure] * (1.0 if measure == "own-time" else middle)
    away: float = max(DEVIATIONS * MAD_TO_SIGMA * mad, least)
    limit = middle + away if measure in HIGH_IS_BAD else middle - away
    return [Standing(member, measure, value, middle, limit, len(found), group[1]) for member, value in found]


@dataclass
class _Held:
    straggler: Straggler | None = None
    streak: int = 0  # of rounds that speak for a change
    first_ns: int = 0
    round: tuple[str, int] = ("", -1)
    met_ns: int = 0  # 0: not by us


Place = tuple[str, str, str]  # cluster, node, key of a standing
Group = tuple[str, str]  # cluster, whom it is compared with


class Hysteresis:
    """Who straggles now. `resume` takes up what another collector knew."""

    def __init__(self) -> None:
        self._held: dict[Place, _Held] = {}

    def resume(self, key: str, straggler: Straggler) -> None:
        place = straggler.cluster, straggler.node, key
        self._held[place] = _Held(straggler)

    def step(
        self,
        found: Iterable[Standing],
        now_ns: int,
        findings: Mapping[tuple[str, str], list[FindingHealth]],
    ) -> tuple[list[tuple[str, Straggler]], list[tuple[str, Straggler]]]:
        """One look at everybody: those who straggle, and those who no longer do."""
        met: set[Place] = set()
        ended: list[tuple[str, Straggler]] = []
        found = list(found)
        usual = _usual_times(found)
        for each in found:
            member = each.member
            place = member.cluster, member.node, each.key
            met.add(place)
            held = self._held.setdefault(place, _Held())
            held.met_ns = now_ns
            if held.round == member.round:
                continue
            held.round = member.round
            if over := self._turned(held, each, now_ns):
                ended.append((each.key, over))
            if held.straggler is not None:
                told = findings.get((member.cluster, member.node), [])
                held.straggler = _told(each, held.straggler.since_ns, told, usual.get(_group(each), {}))
        ended += self._gone(met, now_ns)
        return [
            (place[2], held.straggler) for place, held in self._held.items() if held.straggler is not None
        ], ended

    def _turned(self, held: _Held, each: Standing, now_ns: int) -> Straggler | None:
        speaks = each.well_within if held.straggler is not None else each.beyond
        if not speaks:
            held.streak = 0
            return None
        held.first_ns = held.first_ns if held.streak else now_ns
        held.streak += 1
        if held.streak < ROUNDS:
            return None
        held.streak = 0
        if held.straggler is not None:
            over, held.straggler = held.straggler, None
            return over
        held.straggler = _told(each, held.first_ns, [], {})
        return None

    def _gone(self, met: set[Place], now_ns: int) -> list[tuple[str, Straggler]]:
        over = []
        for place in [place for place in self._held if place not in met]:
            held = self._held[place]
            held.met_ns = held.met_ns or now_ns
            if now_ns - held.met_ns >= ABSENT_NS:
                del self._held[place]
                if held.straggler is not None:
                    over.append((place[2], held.straggler))
        return over


def advice(
    found: Iterable[Standing], straggling: Iterable[tuple[str, Straggler]]
) -> dict[tuple[str, str], list[Advice]]:
    """For every node, what it is told of itself."""
    who = {(each.cluster, each.node, key) for key, each in straggling}
    told: dict[tuple[str, str], list[Advice]] = defaultdict(list)
    for each in found:
        member = each.member
        told[member.cluster, member.node].append(
            Advice(
                each.measure, round(each.value, 4), round(each.median, 4), round(each.limit, 4), each.peers,
                (member.cluster, member.node, each.key) in who, member.pid, member.gpu,
            )
        )  # fmt: skip
    return told


def _group(standing: Standing) -> Group:
    return standing.member.cluster, standing.group


def _usual_times(found: list[Standing]) -> dict[Group, dict[str, float]]:
    """Of each group, what part of its time a member usually spends in each bucket."""
    groups: dict[Group, list[Mapping[str, float]]] = defaultdict(list)
    for each in found:
        if each.measure == "own-time":
            groups[_group(each)].append(each.member.time_s)
    usual: dict[Group, dict[str, float]] = {}
    for group, times in groups.items():
        buckets = {bucket for each in times for bucket in each}
        usual[group] = {
            bucket: median(each.get(bucket, 0.0) / sum(each.values()) for each in times) for bucket in buckets
        }
    return usual


def _told(each: Standing, since_ns: int, told: list[FindingHealth], usual: Mapping[str, float]) -> Straggler:
    member = each.member
    cause = _cause(each, told, usual)
    who = f"rank {member.rank} on {member.node}" if member.rank is not None else member.node
    who += f", GPU {member.gpu}" if member.gpu is not None else ""
    text = f"{who}: {_difference(each)} ({each.peers} {each.group})"
    return Straggler(
        cluster=member.cluster, node=member.node, measure=each.measure, value=each.value,
        median=each.median, limit=each.limit, peers=each.peers, group=each.group, since_ns=since_ns,
        pid=member.pid, gpu=member.gpu, rank=member.rank, cause=cause,
        text=f"{text}; {cause}" if cause else text,
    )  # fmt: skip


def _difference(each: Standing) -> str:
    if each.measure == "own-time":
        value, usual = format_share(each.value), format_share(each.median)
        return f"{value} of its time is its own, of its peers' {usual}"
    if each.measure == "clock":
        return f"clock {each.value / 1e6:.0f} MHz, that of its peers {each.median / 1e6:.0f} MHz"
    return f"pace {each.value:.3g}, that of its peers {each.median:.3g}"


def _cause(each: Standing, told: list[FindingHealth], usual: Mapping[str, float]) -> str:
    """From the node's own findings: of this process before others, the worst; else where its time goes."""
    mine = [one for one in told if not one.ended]
    mine.sort(
        key=lambda one: (one.pid != each.member.pid, SEVERITIES.index(one.severity), -(one.lost_share or 0))
    )
    if mine:
        return f"{mine[0].kind}: {mine[0].cause or mine[0].title}"
    total = sum(each.member.time_s.values())
    if each.measure != "own-time" or not total:
        return ""
    over = {
        bucket: seconds / total - usual.get(bucket, 0.0)
        for bucket, seconds in each.member.time_s.items()
        if bucket not in WAITING
    }
    bucket = max(over, key=lambda name: over[name], default="")
    if not bucket or over[bucket] < 0.03:
        return ""
    return (
        f"most of it {bucket}: {format_share(each.member.time_s[bucket] / total)} of its time,"
        f" usually {format_share(usual.get(bucket, 0.0))}"
    )
