"""The tables of the store: their statements for one machine or a cluster, and a round as rows."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from string import Template
from typing import Any

from ingero.model.fleet import Health

_WHO = ("cluster", "node", "at", "run", "number")
_OF_NODE = (
    "version", "cores_share", "memory_share", "targets", "lost_events", "overhead_share", "agent_cpu_s",
    "dropped_rounds",
)  # fmt: skip
_OF_JOB = (
    "pid", "name", "command", "job", "rank", "world_size", "container", "pod", "namespace", "bound_by",
    "steps_per_s", "usual_steps_per_s", "gpu_busy_share", "time_s",
)  # fmt: skip
_OF_GPU = (
    "gpu", "model", "uuid", "busy_share", "memory_used_bytes", "memory_bytes", "sm_clock_hz", "power_w",
    "temperature_c", "throttled_s",
)  # fmt: skip
COLUMNS: dict[str, tuple[str, ...]] = {
    "node_rounds": (*_WHO, "received", *_OF_NODE),
    "job_rounds": (*_WHO, *_OF_JOB),
    "gpu_rounds": (*_WHO, *_OF_GPU),
    "findings": (
        "cluster", "node", "id", "opened", "told", "kind", "severity", "title", "first", "last", "ended",
        "confidence", "pid", "lost_share", "cause", "fix",
    ),
    "stragglers": ("cluster", "node", "key", "since", "told", "ended", "json"),
}  # fmt: skip
TABLES = (*COLUMNS, "nodes")
ROUNDS = "node_rounds"
Rows = dict[str, list[tuple[Any, ...]]]


def statements(database: str, days: int, cluster: str | None = None) -> list[str]:
    """What makes the tables where they are missing."""
    keeper = f"'/clickhouse/tables/{{shard}}/{database}/{{table}}', '{{replica}}'"

    def named(kind: str, *more: str) -> str:
        if cluster is None:
            return f"{kind}({', '.join(more)})"
        return f"Replicated{kind}({', '.join((keeper, *more))})"

    words = {
        "database": database,
        "cluster": cluster or "",
        "on_cluster": f"ON CLUSTER {cluster}" if cluster else "",
        "suffix": "_shard" if cluster else "",
        "replacing": named("ReplacingMergeTree"),
        "replacing_told": named("ReplacingMergeTree", "told"),
        "aggregating": named("AggregatingMergeTree"),
        "days": str(days),
        "days_of_findings": str(max(days, 90)),
    }
    files = ("tables.sql", "distributed.sql") if cluster else ("tables.sql",)
    folder = resources.files("ingero.fleet.collector") / "ddl"
    texts = [Template((folder / name).read_text(encoding="utf-8")).substitute(words) for name in files]
    return [each for text in texts for each in _split(text)]


def _split(text: str) -> list[str]:
    plain = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return [each.strip() for each in plain.split(";") if each.strip()]


def rows_of(batches: Iterable[Health], signal: str, received_ns: int, into: Rows) -> None:
    """Rounds, or what was told of findings, as rows of their tables."""
    received = received_ns // 1_000_000
    for each in batches:
        if signal == "logs":
            into.setdefault("findings", []).extend(_findings(each))
            continue
        who = (each.cluster, each.node, each.at_ns, each.run.encode(), each.number)
        own = tuple(getattr(each, name) for name in _OF_NODE)
        into.setdefault("node_rounds", []).append((*who, received, *own))
        into.setdefault("job_rounds", []).extend(
            (*who, *(getattr(job, name) for name in _OF_JOB)) for job in each.jobs
        )
        into.setdefault("gpu_rounds", []).extend(
            (*who, *(getattr(gpu, name) for name in _OF_GPU)) for gpu in each.gpus
        )


def _findings(health: Health) -> list[tuple[Any, ...]]:
    return [
        (
            health.cluster, health.node, each.id, each.opened_ns, health.at_ns, each.kind, each.severity,
            each.title, each.first_ns, each.last_ns, each.ended, each.confidence, each.pid, each.lost_share,
            each.cause, each.fix,
        )
        for each in health.findings
    ]  # fmt: skip
