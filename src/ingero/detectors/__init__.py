"""Detectors: one file per problem, pure functions over the accounted timeline.

ALL is the catalogue in the order of its documentation; diagnose() asks every one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from ingero.correlate.timeline import Timeline
from ingero.detectors import (
    alloc_churn,
    cold_start,
    collective_imbalance,
    copy_bound,
    cpu_contention,
    cpu_throttled,
    cuda_error,
    cuda_oom,
    data_starvation,
    disk_wait,
    gc_pause,
    gil_contention,
    gpu_fault,
    gpu_idle,
    gpu_memory_leak,
    gpu_shared,
    gpu_throttled,
    graph_trouble,
    launch_bound,
    memory_pressure,
    nccl_hang,
    nccl_straggler,
    network_retransmits,
    noisy_neighbour,
    oom_kill,
    periodic_spike,
    pod_restart,
    slow_peer,
    slowdown,
    sync_heavy,
    underutilised,
    unwatched,
    version_mismatch,
)
from ingero.detectors.detector import Detector, Evidence, State
from ingero.detectors.judge import Claim, Judge, claim_of, claims_of, state_finding
from ingero.detectors.verdict import NamedRows, Verdicts
from ingero.model.finding import Finding, Unexplained
from ingero.model.report import Bound, NotWatched

ALL: tuple[Detector, ...] = (
    *(
        module.DETECTOR
        for module in (
            cpu_contention,
            cpu_throttled,
            noisy_neighbour,
            data_starvation,
            disk_wait,
            memory_pressure,
            oom_kill,
            pod_restart,
            gil_contention,
            gc_pause,
            network_retransmits,
            slow_peer,
            sync_heavy,
            launch_bound,
            copy_bound,
            alloc_churn,
            gpu_memory_leak,
            cuda_oom,
            cold_start,
            periodic_spike,
            graph_trouble,
            gpu_shared,
            nccl_straggler,
            nccl_hang,
            collective_imbalance,
            gpu_throttled,
            gpu_fault,
            cuda_error,
            version_mismatch,
            underutilised,
            slowdown,
            gpu_idle,
        )
    ),
    *unwatched.DETECTORS.values(),
)
KINDS = tuple(detector.name for detector in ALL)
LOOKED_FOR = tuple(detector.name for detector in ALL if not detector.unwatched)
SPIKY = frozenset({"data-starvation", "gpu-idle", "gc-pause"})  # what long iterations may consist of
NOT_RECORDED = " is not recorded: "
MUCH = 1.5  # times the spikes: then it is not done in them alone
BY_NAME = {detector.name: detector for detector in ALL}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, and what nobody looked for."""

    findings: list[Finding]
    unexplained: list[Unexplained]
    not_watched: list[NotWatched]
    bound: list[Bound]


def diagnose(timeline: Timeline) -> Diagnosis:
    verdicts = Verdicts(timeline)
    claims: list[Claim] = []
    states: list[Finding] = []
    not_watched: list[NotWatched] = []
    for detector in ALL:
        why = why_not(detector, timeline)
        if why:
            not_watched.append(NotWatched(detector.name, why))
            continue
        for source in sorted(detector.either & timeline.facts.absent.keys()):
            why = f"{source}{NOT_RECORDED}{timeline.facts.absent[source]}"
            not_watched.append(NotWatched(f"{detector.name}, in part", why))
        found = list(detector.find(timeline))
        evidence = [
            each
            for each in found
            if isinstance(each, Evidence) and not verdicts.replaces(detector.name, each.job, each.slice)
        ]
        claims.extend(each for each in claims_of(detector, evidence) if not _more_than_grew(each, verdicts))
        states.extend(state_finding(detector, each, timeline) for each in found if isinstance(each, State))
    silent = {each.what for each in not_watched}
    for named in verdicts.named:
        if named.kind in silent or _in_spikes(named, claims):
            continue
        claim = claim_of(BY_NAME[named.kind], named, timeline)
        claims += [claim] if claim else []
    not_watched.extend(_not_watched_of(timeline))
    if timeline.cards.watched and timeline.facts.cards.why:
        not_watched.append(NotWatched("GPU counters, for a time or in part", timeline.facts.cards.why))
    not_watched.extend(NotWatched(f"all of {what}", why) for what, why in timeline.facts.limits.items())
    not_watched.sort(key=lambda each: _matters(each, timeline))
    judge = Judge(timeline, claims)
    findings = in_order(once(judge.findings() + states))
    return Diagnosis(findings, judge.unexplained(), not_watched, verdicts.bound)


def _more_than_grew(claim: Claim, verdicts: Verdicts) -> bool:
    """Stalls that are longer than all that the steps of a pace that fell took more: they were there before,
    or are not lost."""
    if claim.detector is not periodic_spike.DETECTOR:
        return False
    grown_ns = verdicts.grown_ns(claim.job, claim.numbers())
    return grown_ns is not None and claim.ns > MUCH * grown_ns


def _matters(each: NotWatched, timeline: Timeline) -> int:
    """First what is missing of this job, then of this machine; last what nobody watches anywhere."""
    if each.what == pod_restart.DETECTOR.name:  # a job that runs was not evicted
        return 3
    if each.what in unwatched.DETECTORS:
        return 2
    return int(each.why.partition(NOT_RECORDED)[0] in timeline.facts.absent)


def _in_spikes(named: NamedRows, claims: list[Claim]) -> bool:
    """Work that is done in regular spikes is told as those, with its line."""
    spikes = next(
        (each for each in claims if each.detector is periodic_spike.DETECTOR and each.job is named.told.job),
        None,
    )
    if spikes is None or named.told.changed or named.kind not in SPIKY or named.ns > MUCH * spikes.ns:
        return False
    main = max(named.rows, key=lambda row: row.ns)
    spikes.line = named.line
    for episode in spikes.episodes:
        episode.evidence = [
            replace(each, causes=tuple(replace(lost, bucket=main.bucket) for lost in each.causes))
            for each in episode.evidence
        ]
    return True


def why_not(detector: Detector, timeline: Timeline) -> str:
    """Why a detector cannot say anything here; empty: it can."""
    absent = timeline.facts.absent
    missing = sorted(detector.needs & absent.keys())
    if not missing and detector.either and detector.either <= absent.keys():
        missing = sorted(detector.either)
    if missing:
        return f"{missing[0]}{NOT_RECORDED}{absent[missing[0]]}"
    return detector.unwatched


def _not_watched_of(timeline: Timeline) -> Iterator[NotWatched]:
    """What cannot be seen of single jobs: another interpreter, another build."""
    jobs = {job.pid for job in timeline.jobs}
    for pid, source, why in timeline.facts.blind:
        for detector in ALL:
            if pid in jobs and source in detector.needs:
                yield NotWatched(f"{detector.name} of {timeline.facts.comm(pid)} (pid {pid})", why)


def once(findings: list[Finding]) -> list[Finding]:
    """The same kind about the same process is one finding: the worst of them stays, and says when else."""
    kept: dict[str, Finding] = {}
    for each in findings:
        before = kept.get(each.key)
        if before is not None:
            worse, other = sorted((before, each), key=_worst_first)
            each = _also(worse, other)
        kept[each.key] = each
    return list(kept.values())


def _also(finding: Finding, other: Finding) -> Finding:
    """With the time of the other: nothing that was slow goes unsaid. All figures are those of the worse."""
    if not finding.episodes or not other.episodes:
        return finding
    episodes: list[tuple[int, int]] = []
    for start, end in sorted((*finding.episodes, *other.episodes)):
        if episodes and start <= episodes[-1][1]:
            episodes[-1] = episodes[-1][0], max(end, episodes[-1][1])
        else:
            episodes.append((start, end))
    return msgspec.structs.replace(
        finding, episodes=episodes, first_ns=episodes[0][0], last_ns=episodes[-1][1]
    )


def in_order(findings: list[Finding]) -> list[Finding]:
    """Worst first; what makes a rank slow comes after the finding that all wait for that rank, and how a
    job always was after what made it slower."""
    waited_for: dict[tuple[str, int | None], int] = {}  # by node and process
    for each in findings:
        if each.kind == "nccl-straggler":
            waited_for |= {
                (each.node, who.pid): each.severity.rank for cause in each.causes for who in cause.who
            }

    changed: dict[tuple[str, int | None], int] = {}
    for each in findings:
        if _is_change(each):
            victim = each.node, each.victim.pid
            changed[victim] = max(each.severity.rank, changed.get(victim, 0))

    def place(finding: Finding) -> tuple[int, int, int, int, int, float]:
        rank, *rest = _worst_first(finding)
        always = finding.effect.wall_share is not None and finding.effect.usual_ns is None
        victim = finding.node, finding.victim.pid
        after = changed.get(victim) if always else None
        rank = max(rank, waited_for.get(victim, 0), after or 0)
        return (rank, int(after is not None), *rest)  # type: ignore[return-value]

    return sorted(findings, key=place)


def _is_change(finding: Finding) -> bool:
    """The steps became longer while it was watched."""
    usual, now = finding.effect.usual_ns, finding.effect.now_ns
    return usual is not None and now is not None and now > usual


def _worst_first(finding: Finding) -> tuple[int, int, int, int, float]:
    """How findings are sorted."""
    excess = finding.effect.excess_ns or 0
    state = finding.effect.excess_ns is None
    # A rank that all wait for comes before what makes it slow: whoever reads it must look there first.
    symptom = finding.kind not in ("nccl-straggler", "nccl-hang")
    return finding.severity.rank, int(symptom), int(not state), -excess, -(finding.effect.wall_share or 0.0)
