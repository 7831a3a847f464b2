"""What a node tells the fleet of one round, from the series and findings it has anyway.

Counters run from the start of a trace; a round is the difference to the one before. The first
round has nothing to compare with, so what is counted in it is unknown.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ingero import __version__, units
from ingero.model.finding import Cause, Finding
from ingero.model.fleet import FINDINGS, GPUS, JOBS, FindingHealth, GpuHealth, Health, JobHealth
from ingero.model.metrics import PROCESS, Distribution, SeriesPoint, Snapshot
from ingero.model.report import Bound

TEXT = 300
# What differs between the ranks of one job.
_RANKS = re.compile(r"((?:local|node|global)?[-_]?rank\w*[= ]+)\d+", re.IGNORECASE)
_GAUGES = {
    "busy_share": "gpu.utilization",
    "memory_used_bytes": "gpu.memory.used",
    "memory_bytes": "gpu.memory.total",
    "power_w": "gpu.power",
    "temperature_c": "gpu.temperature",
}
_WHOLE = {"memory_used_bytes", "memory_bytes"}
Key = tuple[str, ...]


class Taker:
    """Makes rounds; remembers the counters of the last one."""

    def __init__(self, cluster: str, run: str) -> None:
        self._cluster, self._run = cluster, run
        self._number = 0
        self._before: dict[Key, tuple[float, int]] = {}  # counter: value, since when it is counted
        self._last_ns: int | None = None

    def take(
        self,
        snapshot: Snapshot,
        bound: Iterable[Bound] = (),
        commands: Mapping[int, str] | None = None,
        findings: Iterable[FindingHealth] = (),
        dropped: int = 0,
        of_round: bool = False,
    ) -> Health:
        """The round that ends now; `of_round`: the counters were counted in it, as in a recording."""
        self._number += 1
        if of_round:
            self._before, self._last_ns = {}, snapshot.start_ns
        grown = self._grown(snapshot)
        lost = [value for key, value in grown.items() if key[0] == "lost.events"]
        first = self._last_ns is None
        made = Health(
            node=snapshot.node,
            at_ns=snapshot.at_ns,
            from_ns=snapshot.start_ns if self._last_ns is None else self._last_ns,
            cluster=self._cluster,
            version=__version__,
            run=self._run,
            number=self._number,
            cores_share=_gauge(snapshot, "system.cpu"),
            memory_share=_gauge(snapshot, "system.memory"),
            targets=_whole(_gauge(snapshot, "targets")),
            lost_events=None if first else int(sum(lost)),
            overhead_share=_gauge(snapshot, "overhead"),
            agent_cpu_s=grown.get(("agent.cpu.time",)),
            dropped_rounds=dropped,
            gpus=_gpus(snapshot, grown)[:GPUS],
            jobs=_jobs(snapshot, grown, {each.pid: each for each in bound}, commands or {})[:JOBS],
            findings=list(findings)[:FINDINGS],
        )
        self._last_ns = snapshot.at_ns
        return made

    def _grown(self, snapshot: Snapshot) -> dict[Key, float]:
        """By how much each counter grew; one that began within the round has grown from nothing."""
        now: dict[Key, tuple[float, int]] = {}
        for name in ("thread.time", "lost.events", "agent.cpu.time", "gpu.throttled.time"):
            for point in snapshot.points.get(name, ()):
                now[name, *point.labels] = _number(point), point.start_ns
        grown: dict[Key, float] = {}
        if self._last_ns is not None:
            for key, (value, since_ns) in now.items():
                before, before_ns = self._before.get(key, (0.0, since_ns))
                grown[key] = max(0.0, value - (before if before_ns == since_ns else 0.0))
        self._before = now
        return grown


def command_digest(command: str) -> str:
    """The same for all ranks of a job; nothing of the command line leaves the machine."""
    plain = _RANKS.sub(r"\1", " ".join(command.split()))
    return hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:16] if plain else ""


def told(finding: Finding, opened_ns: int, *, ended: bool = False) -> FindingHealth:
    """A finding in few words."""
    causes = [each for each in finding.causes if each.bucket != "unexplained"]
    return FindingHealth(
        id=finding.id,
        opened_ns=opened_ns,
        kind=finding.kind,
        severity=str(finding.severity),
        title=units.clean(finding.title, TEXT),
        first_ns=finding.first_ns,
        last_ns=finding.last_ns,
        ended=ended,
        confidence=finding.confidence,
        pid=finding.victim.pid,
        lost_share=finding.effect.wall_share,
        cause=units.clean(_cause(causes), TEXT) if causes else "",
        fix=units.clean(finding.fix[0].text, TEXT) if finding.fix else "",
    )


def _cause(causes: list[Cause]) -> str:
    largest = max(causes, key=lambda each: each.ns)
    if largest.evidence:
        return largest.evidence[0].text
    return f"{largest.bucket}: {largest.who[0].comm}" if largest.who else largest.bucket


def _number(point: SeriesPoint) -> float:
    assert not isinstance(point.value, Distribution)
    return float(point.value)


def _gauge(snapshot: Snapshot, name: str) -> float | None:
    points = snapshot.points.get(name)
    return _number(points[0]) if points else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _gpus(snapshot: Snapshot, grown: Mapping[Key, float]) -> list[GpuHealth]:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    words: dict[str, tuple[str, str]] = {}
    for field, name in _GAUGES.items():
        for point in snapshot.points.get(name, ()):
            found[point.labels[0]][field] = _number(point)
            words[point.labels[0]] = point.labels[1], point.labels[2]
    for point in snapshot.points.get("gpu.clock", ()):
        if point.labels[3] == "sm":
            found[point.labels[0]]["sm_clock_hz"] = _number(point)
            words[point.labels[0]] = point.labels[1], point.labels[2]
    for key, value in grown.items():
        if key[0] == "gpu.throttled.time" and key[1] in found:
            found[key[1]]["throttled_s"] = found[key[1]].get("throttled_s", 0.0) + value
    return [
        GpuHealth(
            int(gpu),
            uuid=words[gpu][0],
            model=words[gpu][1],
            **{name: int(value) if name in _WHOLE else value for name, value in values.items()},  # type: ignore[arg-type]
        )
        for gpu, values in sorted(found.items(), key=lambda pair: int(pair[0]))
    ]


def _jobs(
    snapshot: Snapshot,
    grown: Mapping[Key, float],
    bound: Mapping[int, Bound],
    commands: Mapping[int, str],
) -> list[JobHealth]:
    """Processes whose threads feed a GPU; those with most time in this round first."""
    times: dict[int, dict[str, float]] = defaultdict(dict)
    for key, value in grown.items():
        if key[0] == "thread.time" and key[1].isdecimal() and value > 0:
            times[int(key[1])][key[1 + len(PROCESS)]] = round(value, 6)
    made: list[JobHealth] = []
    for point in snapshot.points.get("process.info", ()):
        pid = int(point.labels[0]) if point.labels[0].isdecimal() else None
        if pid is None or (pid not in times and pid not in bound):
            continue
        name, container, pod, namespace, rank, world, _, job = point.labels[1:]
        limit = bound.get(pid)
        made.append(
            JobHealth(
                pid, name, command_digest(commands.get(pid, "")), job,
                rank=int(rank) if rank.isdecimal() else None,
                world_size=int(world) if world.isdecimal() else None,
                container=container, pod=pod, namespace=namespace,
                bound_by=limit.by if limit else "",
                steps_per_s=limit.steps_per_s if limit else None,
                usual_steps_per_s=_usual(limit),
                gpu_busy_share=limit.gpu_busy_share if limit else None,
                time_s=times.get(pid, {}),
            )
        )  # fmt: skip
    return sorted(made, key=lambda each: -sum(each.time_s.values()))


def _usual(limit: Bound | None) -> float | None:
    """Where the pace held, it is the usual one."""
    if limit is None:
        return None
    return limit.steps_per_s if limit.usual_steps_per_s is None else limit.usual_steps_per_s
