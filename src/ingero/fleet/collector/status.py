"""The fleet now: every node with its state, worst first; what the page, the table and the metrics show."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec

from ingero.fleet.collector import questions
from ingero.fleet.collector.peers import SEVERITIES
from ingero.model.fleet import STATES, FindingHealth, FleetStatus, NodeStatus, Straggler

FINDINGS = 8  # of a node, in a list of nodes
Place = tuple[str, str]


class Filters(msgspec.Struct, frozen=True):
    """Which nodes; None: all."""

    cluster: str | None = None
    node: str | None = None
    job: str | None = None
    namespace: str | None = None
    finding: str | None = None
    state: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1)] = 10_000

    def match(self, status: NodeStatus) -> bool:
        return (
            self.cluster in (None, status.cluster)
            and self.node in (None, status.node)
            and (self.job is None or self.job in status.job_names)
            and (self.namespace is None or self.namespace in status.namespaces)
            and (self.finding is None or self.finding in {each.kind for each in status.findings})
            and self.state in (None, status.state)
        )


def everybody(store: questions.Asked, now_ns: int, straggling: Iterable[Straggler]) -> list[NodeStatus]:
    """All nodes, worst first."""
    rounds, jobs = questions.last_rounds(store, now_ns), questions.last_jobs(store, now_ns)
    gpus, findings = questions.last_gpus(store, now_ns), questions.lasting_findings(store, now_ns)
    lagging: dict[Place, list[Straggler]] = defaultdict(list)
    for each in straggling:
        lagging[each.cluster, each.node].append(each)
    found = [_status(row, rounds, jobs, gpus, findings, lagging, now_ns) for row in questions.nodes(store)]
    return sorted(found, key=_badness)


def filtered(nodes: list[NodeStatus], filters: Filters, at_ns: int, node_page: str = "") -> FleetStatus:
    """Those asked for; `states` counts all that match."""
    chosen = [each for each in nodes if filters.match(each)]
    counts = Counter(each.state for each in chosen)
    given = {name: value for name, value in msgspec.to_builtins(filters).items() if value is not None}
    return FleetStatus(
        at_ns=at_ns,
        total=len(chosen),
        states={state: counts.get(state, 0) for state in STATES},
        nodes=chosen[: filters.limit],
        left_out=max(0, len(chosen) - filters.limit),
        filters=given,
        clusters=sorted({each.cluster for each in nodes}),
        node_page=node_page,
    )


def _status(
    row: Mapping[str, Any],
    rounds: Mapping[Place, Mapping[str, Any]],
    jobs: Mapping[Place, Mapping[str, Any]],
    gpus: Mapping[Place, Mapping[str, Any]],
    findings: Mapping[Place, list[FindingHealth]],
    lagging: Mapping[Place, list[Straggler]],
    now_ns: int,
) -> NodeStatus:
    place = row["cluster"], row["node"]
    silent = place not in rounds
    heard = now_ns - row["last_seen_ns"] <= questions.SILENT_NS
    # Heard of now, and none of it is of now: its clock is off, or it tells what waited on its disk.
    elsewhen = heard and silent and abs(row["last_at_ns"] - row["last_seen_ns"]) > questions.RECENT_NS
    told = sorted(
        findings.get(place, []), key=lambda each: (SEVERITIES.index(each.severity), -(each.lost_share or 0))
    )
    last, working, cards = rounds.get(place, {}), jobs.get(place, {}), gpus.get(place, {})
    return NodeStatus(
        cluster=row["cluster"],
        node=row["node"],
        state=_state(silent, told, bool(lagging.get(place))),
        last_seen_ns=row["last_seen_ns"],
        other_time_ns=row["last_at_ns"] if elsewhen else None,
        version=last.get("version", ""),
        jobs=working.get("jobs", 0),
        gpus=cards.get("gpus", 0),
        models=[each for each in cards.get("models", []) if each],
        job_names=[each for each in working.get("job_names", []) if each],
        namespaces=working.get("namespaces", []),
        gpu_busy_share=cards.get("gpu_busy_share"),
        memory_share=cards.get("memory_share"),
        pace_share=working.get("pace_share"),
        lost_events=last.get("lost_events"),
        overhead_share=last.get("overhead_share"),
        dropped_rounds=last.get("dropped_rounds", 0),
        findings=told[:FINDINGS],
        straggling=lagging.get(place, []),
    )


def _state(silent: bool, findings: list[FindingHealth], lagging: bool) -> str:
    if silent:
        return "silent"
    worst = findings[0].severity.lower() if findings else "fine"
    if worst == "critical":
        return worst
    return "straggling" if lagging else worst


def _badness(status: NodeStatus) -> tuple[Any, ...]:
    lost = max((each.lost_share or 0.0 for each in status.findings), default=0.0)
    return STATES.index(status.state), -lost, status.cluster, status.node
