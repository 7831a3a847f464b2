"""One node over the last hours: its rounds, thinned to what a chart can show, and its findings."""

from __future__ import annotations

import time

from ingero.fleet.collector.questions import Asked
from ingero.model.fleet import NodeHistory, NodePoint

POINTS = 360


def history(store: Asked, cluster: str, node: str, hours: float, now_ns: int | None = None) -> NodeHistory:
    now_ns = time.time_ns() if now_ns is None else now_ns
    since = now_ns - int(hours * 3600e9)
    step_s = max(10, int(hours * 3600 / POINTS))
    who = {"cluster": cluster, "node": node, "since": since, "step": step_s}
    where = (
        "cluster = {cluster:String} AND node = {node:String} AND at > fromUnixTimestamp64Nano({since:Int64})"
    )
    begun = "toUnixTimestamp(toStartOfInterval(at, toIntervalSecond({step:UInt32})))"
    lost = store.ask(
        f"SELECT {begun} AS s, sum(lost_events) AS lost FROM $node_rounds FINAL WHERE {where} GROUP BY s",
        **who,
    )
    jobs = store.ask(
        f"SELECT {begun} AS s, min(if(usual_steps_per_s > 0, steps_per_s / usual_steps_per_s, NULL)) AS pace"
        f" FROM $job_rounds WHERE {where} GROUP BY s", **who
    )  # fmt: skip
    gpus = store.ask(
        f"SELECT {begun} AS s, avg(busy_share) AS busy FROM $gpu_rounds WHERE {where} GROUP BY s", **who
    )
    paces = {row["s"]: row["pace"] for row in jobs}
    busy = {row["s"]: row["busy"] for row in gpus}
    points = [
        NodePoint(row["s"] * 1_000_000_000, paces.get(row["s"]), busy.get(row["s"]), row["lost"])
        for row in sorted(lost, key=lambda row: row["s"])
    ]
    findings = store.ask(
        "SELECT kind, severity, title, toUnixTimestamp64Nano(first) AS first_ns,"
        " toUnixTimestamp64Nano(last) AS last_ns, ended, cause FROM $findings FINAL"
        " WHERE cluster = {cluster:String} AND node = {node:String}"
        " AND told > fromUnixTimestamp64Nano({since:Int64}) ORDER BY last DESC LIMIT 100",
        **who,
    )
    return NodeHistory(cluster, node, points, findings)
