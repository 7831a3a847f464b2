"""What the collector asks its store: the last round of every node, and what lasts.

Copies of a batch do not change any of these answers. GLOBAL: in a cluster the list of last rounds is
made once, not once for each shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from ingero.fleet.collector.peers import Member
from ingero.model.fleet import FindingHealth, Straggler

RECENT_NS = 600_000_000_000  # clocks of nodes may be off by less
SILENT_NS = 45_000_000_000  # without a round: four of them
LASTS_NS = 300_000_000_000  # a finding nobody repeated is over: by the clock of its node
_HEARD = """at > fromUnixTimestamp64Nano({since:Int64}) AND at <= fromUnixTimestamp64Nano({until:Int64})
    AND received > fromUnixTimestamp64Milli({heard:Int64})"""
_LAST = f"""(cluster, node, run, number) GLOBAL IN (
    SELECT cluster, node, run, number FROM $node_rounds
    WHERE {_HEARD}
    ORDER BY at DESC LIMIT 1 BY cluster, node)
    AND at > fromUnixTimestamp64Nano({{since:Int64}})"""


class Asked(Protocol):
    def ask(self, sql: str, **parameters: Any) -> list[dict[str, Any]]: ...


Place = tuple[str, str]


def _between(now_ns: int) -> dict[str, int]:
    """A node's clock may be off; whether it was heard of lately is told by ours."""
    heard = (now_ns - SILENT_NS) // 1_000_000
    return {"since": now_ns - RECENT_NS, "until": now_ns + RECENT_NS, "heard": heard}


def nodes(store: Asked) -> list[dict[str, Any]]:
    """Every node that spoke within the retention."""
    return store.ask(
        "SELECT cluster, node, toUnixTimestamp64Milli(max(last_received)) * 1000000 AS last_seen_ns,"
        " toUnixTimestamp64Nano(max(last_at)) AS last_at_ns"
        " FROM $nodes GROUP BY cluster, node"
    )


def last_rounds(store: Asked, now_ns: int) -> dict[Place, dict[str, Any]]:
    rows = store.ask(
        "SELECT cluster, node, version, lost_events, overhead_share, dropped_rounds FROM $node_rounds"
        f" WHERE {_LAST} LIMIT 1 BY cluster, node",
        **_between(now_ns),
    )
    return {(row["cluster"], row["node"]): row for row in rows}


def last_jobs(store: Asked, now_ns: int) -> dict[Place, dict[str, Any]]:
    """For each node its jobs together."""
    rows = store.ask(
        "SELECT cluster, node, uniqExact(pid) AS jobs,"
        " min(if(usual_steps_per_s > 0, steps_per_s / usual_steps_per_s, NULL)) AS pace_share,"
        " arraySort(groupUniqArray(8)(if(job != '', job, name))) AS job_names,"
        " arraySort(groupUniqArrayIf(8)(namespace, namespace != '')) AS namespaces"
        f" FROM $job_rounds WHERE {_LAST} GROUP BY cluster, node",
        **_between(now_ns),
    )
    return {(row["cluster"], row["node"]): row for row in rows}


def last_gpus(store: Asked, now_ns: int) -> dict[Place, dict[str, Any]]:
    rows = store.ask(
        "SELECT cluster, node, uniqExact(gpu) AS gpus, arraySort(groupUniqArray(4)(model)) AS models,"
        " avg(busy_share) AS gpu_busy_share,"
        " max(if(memory_bytes > 0, memory_used_bytes / memory_bytes, NULL)) AS memory_share"
        f" FROM $gpu_rounds WHERE {_LAST} GROUP BY cluster, node",
        **_between(now_ns),
    )
    return {(row["cluster"], row["node"]): row for row in rows}


def lasting_findings(store: Asked, now_ns: int) -> dict[Place, list[FindingHealth]]:
    rows = store.ask(
        "SELECT cluster, node, id, toUnixTimestamp64Nano(opened) AS opened_ns, kind, severity, title,"
        " toUnixTimestamp64Nano(first) AS first_ns, toUnixTimestamp64Nano(last) AS last_ns, ended,"
        " confidence, pid, lost_share, cause, fix, toUnixTimestamp64Nano(told) AS told_ns"
        " FROM $findings FINAL"
        " WHERE NOT ended AND told > fromUnixTimestamp64Nano({since:Int64})",
        since=now_ns - RECENT_NS - LASTS_NS,
    )
    clocks = _clocks(store, now_ns) if rows else {}
    found: dict[Place, list[FindingHealth]] = defaultdict(list)
    for row in rows:
        place, told_ns = (row.pop("cluster"), row.pop("node")), row.pop("told_ns")
        if told_ns > clocks.get(place, now_ns) - LASTS_NS:
            found[place].append(msgspec.convert(row, FindingHealth))
    return found


def _clocks(store: Asked, now_ns: int) -> dict[Place, int]:
    """What time it is on nodes that are heard: that of their last round."""
    rows = store.ask(
        "SELECT cluster, node, toUnixTimestamp64Nano(max(at)) AS at_ns FROM $node_rounds"
        f" WHERE {_HEARD} GROUP BY cluster, node",
        **_between(now_ns),
    )
    return {(row["cluster"], row["node"]): row["at_ns"] for row in rows}


def members(store: Asked, now_ns: int) -> list[Member]:
    """Everybody who can be compared: jobs and GPUs of the last rounds."""
    gpus = store.ask(
        "SELECT cluster, node, run, number, gpu, model, busy_share, sm_clock_hz FROM $gpu_rounds"
        f" WHERE {_LAST} LIMIT 1 BY cluster, node, gpu",
        **_between(now_ns),
    )
    models = {(row["cluster"], row["node"]): row["model"] for row in gpus}
    jobs = store.ask(
        "SELECT cluster, node, run, number, pid, if(job != '', job, command) AS named, rank, world_size,"
        " bound_by, steps_per_s, usual_steps_per_s, gpu_busy_share, time_s"
        f" FROM $job_rounds WHERE {_LAST} LIMIT 1 BY cluster, node, pid",
        **_between(now_ns),
    )
    return [*(_job(row, models) for row in jobs), *(_gpu(row) for row in gpus)]


def _job(row: dict[str, Any], models: dict[Place, str]) -> Member:
    return Member(
        row["cluster"], row["node"], (_text(row["run"]), row["number"]), row["pid"],
        model=models.get((row["cluster"], row["node"]), ""), job=row["named"], rank=row["rank"],
        world_size=row["world_size"], bound_by=row["bound_by"], steps_per_s=row["steps_per_s"],
        usual_steps_per_s=row["usual_steps_per_s"], busy_share=row["gpu_busy_share"], time_s=row["time_s"],
    )  # fmt: skip


def _gpu(row: dict[str, Any]) -> Member:
    return Member(
        row["cluster"], row["node"], (_text(row["run"]), row["number"]), gpu=row["gpu"], model=row["model"],
        busy_share=row["busy_share"], clock_hz=row["sm_clock_hz"],
    )  # fmt: skip


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def straggling(store: Asked) -> Iterable[tuple[str, Straggler]]:
    """Who straggled when the last collector looked: of several, whoever told last of a place counts."""
    rows = store.ask(
        "SELECT key, argMax(json, told) AS json FROM $stragglers GROUP BY cluster, node, key"
        " HAVING NOT argMax(ended, told)"
    )
    return [(row["key"], msgspec.json.decode(row["json"], type=Straggler)) for row in rows]
