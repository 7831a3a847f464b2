"""The collector's own series for Prometheus. Labels are clusters, states and kinds: bounded, never nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ingero.fleet.collector.commit import Committer
from ingero.fleet.collector.watch import Watch
from ingero.model.fleet import STATES

CLUSTERS = 50  # with series of their own
OTHER = "other"
Labels = tuple[tuple[str, str], ...]

# Name, type, help.
SERIES: dict[str, tuple[str, str]] = {
    "ingero_fleet_nodes": ("gauge", "Nodes by state, worst state counts."),
    "ingero_fleet_findings": ("gauge", "Findings that last, by kind and severity."),
    "ingero_fleet_stragglers": ("gauge", "Processes and GPUs that straggle, by measure."),
    "ingero_fleet_nodes_losing_events": ("gauge", "Nodes that dropped records in their last round."),
    "ingero_fleet_dropped_rounds": ("gauge", "Rounds that nodes gave up, since their agents started."),
    "ingero_fleet_rounds_dropped_total": ("counter", "Rounds that nodes gave up since the collector looks."),
    "ingero_fleet_last_look_timestamp_seconds": ("gauge", "When the whole fleet was last looked at."),
    "ingero_fleet_look_seconds": ("gauge", "How long that took."),
    "ingero_fleet_requests_total": ("counter", "Requests of nodes, by what became of them."),
    "ingero_fleet_batches_total": ("counter", "Batches stored."),
    "ingero_fleet_batches_again_total": ("counter", "Batches that came again and were stored already."),
    "ingero_fleet_rows_total": ("counter", "Rows stored."),
    "ingero_fleet_inserts_total": ("counter", "Inserts into the store."),
    "ingero_fleet_insert_failures_total": ("counter", "Inserts the store did not take."),
    "ingero_fleet_insert_seconds_total": ("counter", "Time spent inserting."),
    "ingero_fleet_batches_waiting": ("gauge", "Batches that wait for the store."),
}


def text(watch: Watch, committer: Committer, requests: Mapping[str, int]) -> str:
    """As Prometheus reads it."""
    lines: list[str] = []
    told = ""
    for name, labels, value in _values(watch, committer, requests):
        if name != told:
            kind, help_text = SERIES[name]
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
            told = name
        inside = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels)
        lines.append(f"{name}{{{inside}}} {value:.12g}" if inside else f"{name} {value:.12g}")
    return "\n".join(lines) + "\n"


def _values(
    watch: Watch, committer: Committer, requests: Mapping[str, int]
) -> Iterator[tuple[str, Labels, float]]:
    nodes = watch.nodes
    known = {name for name, _ in Counter(each.cluster for each in nodes).most_common(CLUSTERS)}

    def cluster(name: str) -> str:
        return name if name in known else OTHER

    states = Counter((cluster(each.cluster), each.state) for each in nodes)
    for name in sorted({key[0] for key in states}):
        for state in STATES:
            yield "ingero_fleet_nodes", (("cluster", name), ("state", state)), states[name, state]
    found = Counter((each.kind, each.severity) for node in nodes for each in node.findings)
    for (kind, severity), count in sorted(found.items())[:400]:
        yield "ingero_fleet_findings", (("kind", kind), ("severity", severity)), count
    lagging = Counter((cluster(node.cluster), each.measure) for node in nodes for each in node.straggling)
    for (name, measure), count in sorted(lagging.items()):
        yield "ingero_fleet_stragglers", (("cluster", name), ("measure", measure)), count
    yield "ingero_fleet_nodes_losing_events", (), sum(bool(each.lost_events) for each in nodes)
    yield "ingero_fleet_dropped_rounds", (), sum(each.dropped_rounds for each in nodes)
    yield "ingero_fleet_rounds_dropped_total", (), watch.rounds_dropped
    yield "ingero_fleet_last_look_timestamp_seconds", (), watch.at_ns / 1e9
    yield "ingero_fleet_look_seconds", (), watch.took_s
    for outcome, count in sorted(requests.items()):
        yield "ingero_fleet_requests_total", (("outcome", outcome),), count
    counts = committer.counts
    yield "ingero_fleet_batches_total", (), counts.batches
    yield "ingero_fleet_batches_again_total", (), counts.again
    yield "ingero_fleet_rows_total", (), counts.rows
    yield "ingero_fleet_inserts_total", (), counts.inserts
    yield "ingero_fleet_insert_failures_total", (), counts.failures
    yield "ingero_fleet_insert_seconds_total", (), counts.insert_s
    yield "ingero_fleet_batches_waiting", (), committer.waiting


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
