"""What an assistant can ask. Each tool renders one answer; what it says about itself is its docstring.

Every argument is bounded by its type: what is out of bounds is refused before it gets here.
"""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import Annotated, Literal

from pydantic import Field

from ingero import units
from ingero.errors import UsageError
from ingero.model.report import GpuLine, Report
from ingero.serve.answers import cost as costs
from ingero.serve.answers.graphs import get_graphs
from ingero.serve.answers.labels import Labels
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.own_cost import own_cost_words
from ingero.serve.answers.query import (
    Limits,
    Range,
    ask_by_label,
    ask_kernels_if_quick,
    ask_sql,
    ask_statistics,
    require_known,
)
from ingero.serve.answers.report_processes import feeds_gpu
from ingero.serve.answers.stacks import get_stacks
from ingero.serve.answers.whose import Whose
from ingero.serve.mcp import fleet as mcp_fleet
from ingero.serve.mcp import parts, rendering
from ingero.serve.mcp import source as mcp_source
from ingero.serve.mcp.bounds import Answer, Detail, data, name, word
from ingero.serve.mcp.fleet import ask_nodes
from ingero.serve.mcp.source import AssistantSource, FleetSource

KERNELS = 10  # most of them in statistics
SQL_SECONDS = 10.0
SQL_BYTES = 1 << 20  # read from the database; what is shown is far less

Since = Annotated[
    str | None,
    Field(
        max_length=32,
        description="Only the last part: 90s, 5m, 1h. Counts back from now while the recording runs, from"
        " its last record afterwards. Left out: the whole last recording.",
    ),
]
Pid = Annotated[int | None, Field(ge=1, le=2**31, description="Only this process.")]
Container = Annotated[str | None, Field(max_length=256, description="Only this container: id or name.")]
Pod = Annotated[str | None, Field(max_length=512, description="Only this pod, or NAMESPACE/POD.")]
Namespace = Annotated[str | None, Field(max_length=256, description="Only this namespace.")]
Job = Annotated[str | None, Field(max_length=256, description="Only this job, as in Slurm or Kubernetes.")]
User = Annotated[str | None, Field(max_length=256, description="Only this user's jobs.")]
Op = Annotated[str | None, Field(max_length=128, description="Only this operation, such as cudaMemcpyAsync.")]
Chosen = Annotated[str | None, Field(max_length=256, description="Only nodes with this.")]
HowMuch = Annotated[Detail, Field(description="brief keeps the answer below 8 KB, full below 60 KB.")]
Scenario = Literal[
    "incident", "cold-start", "memcpy-bottleneck", "periodic-spike", "cpu-contention", "gpu-steal"
]


def most(entries: int) -> object:
    return Field(ge=1, le=entries, description="Most entries to list.")


class Tools:
    """The tools, asked about one source."""

    def __init__(self, source: AssistantSource) -> None:
        self._source = source

    def get_check(self, detail: HowMuch = "brief") -> Answer:
        """Whether this machine can be traced, and what to do about what is missing."""
        answer = self._source.checks()
        worth = [each for each in answer.checks if detail == "full" or each.status != "ok"]
        return {
            "answer": "this machine can be traced"
            if answer.ok
            else "something that tracing needs is missing",
            "checks": [
                rendering.known(
                    {
                        "name": word(each.name),
                        "status": word(each.status),
                        "value": data(each.value, 200),
                        "what_to_do": data(each.advice, 300) if each.advice else "",
                    }
                )
                for each in sorted(worth, key=lambda each: ("failed", "warning", "ok").index(each.status))
            ],
            "fine": sum(each.status == "ok" for each in answer.checks),
        }

    def get_findings(
        self,
        since: Since = None,
        pid: Pid = None,
        container: Container = None,
        pod: Pod = None,
        namespace: Namespace = None,
        job: Job = None,
        user: User = None,
        limit: Annotated[int, most(100)] = 20,
        detail: HowMuch = "brief",  # noqa: ARG002
    ) -> Answer:
        """What is wrong, worst first, in one line each: kind, severity, victim, since when, share of wall
        time lost. Start here; get_causal_chains has the causes, proofs and fixes."""
        whose = Whose(container, pod, namespace, job, user)
        report = self._source.report(Range(since), pid, whose)
        return {
            "answer": _verdict(report),
            "window": rendering.window(report),
            "findings": [rendering.finding_line(each, report.of_several) for each in report.findings[:limit]],
            "bound_by": [rendering.bound_part(each) for each in report.bound[:limit]] or None,
            "unexplained": [rendering.unexplained_part(each) for each in report.unexplained[:limit]] or None,
            **_footer(report),
        }

    def get_causal_chains(
        self,
        since: Since = None,
        pid: Pid = None,
        container: Container = None,
        pod: Pod = None,
        namespace: Namespace = None,
        job: Job = None,
        user: User = None,
        limit: Annotated[int, most(50)] = 5,
        detail: HowMuch = "brief",
    ) -> Answer:
        """Why it is slow: each finding from cause to effect, with who is to blame, what proves it, where the
        victim's time went, the source line where known, what fixing it wins and commands that fix it."""
        whose = Whose(container, pod, namespace, job, user)
        report = self._source.report(Range(since), pid, whose)
        full = detail == "full"
        return {
            "answer": _verdict(report),
            "window": rendering.window(report),
            "system": _system(report),
            "chains": [
                rendering.finding_chain(each, full, report.of_several) for each in report.findings[:limit]
            ],
            "bound_by": [rendering.bound_part(each) for each in report.bound[:limit]] or None,
            "more_findings": max(0, len(report.findings) - limit) or None,
            "unexplained": [rendering.unexplained_part(each) for each in report.unexplained[:limit]] or None,
            **_footer(report),
        }

    def get_process_time(
        self,
        since: Since = None,
        pid: Pid = None,
        container: Container = None,
        pod: Pod = None,
        namespace: Namespace = None,
        job: Job = None,
        user: User = None,
        limit: Annotated[int, most(100)] = 5,
        detail: HowMuch = "brief",
    ) -> Answer:
        """Where the time of each process went: shares of the wall time of the threads that feed the GPU by
        bucket (gpu_wait, runqueue, disk_wait ...), step time, worst stall, busiest calls, CPU taken; and the
        lines of code that call, compute and wait most."""
        whose = Whose(container, pod, namespace, job, user)
        report = self._source.report(Range(since), pid, whose)
        feeding = sum(map(feeds_gpu, report.processes))
        return {
            "answer": f"processes that feed a GPU: {feeding}; with a part in it: {len(report.processes)}",
            "window": rendering.window(report),
            "system": _system(report),
            "processes": [
                rendering.process_part(each, detail == "full") for each in report.processes[:limit]
            ],
            "more_processes": max(0, len(report.processes) - limit) or None,
            **_footer(report),
        }

    def get_trace_stats(
        self,
        since: Since = None,
        pid: Pid = None,
        container: Container = None,
        pod: Pod = None,
        namespace: Namespace = None,
        job: Job = None,
        user: User = None,
        op: Op = None,
        by: Annotated[
            str | None,
            Field(
                max_length=128,
                description="Group by namespace, pod, job, user, container, node, or a label such as step.",
            ),
        ] = None,
        limit: Annotated[int, most(200)] = 20,
        detail: HowMuch = "brief",  # noqa: ARG002
    ) -> Answer:
        """What CUDA and NCCL calls cost: per operation the count, p50, p95, p99, maximum, total time, share
        of wall time, bytes and failures, most time first; and the kernels launched most."""
        whose = self._known(pid, op, Whose(container, pod, namespace, job, user))
        filters = Filters(pid, op, **asdict(whose))
        if by:
            grouped = ask_by_label(self._source.db, Range(since), filters, limit, None, Labels(by=by))
            return parts.grouped_parts(grouped)
        found = ask_statistics(self._source.db, Range(since), filters, limit)
        kernels = ask_kernels_if_quick(self._source.db, Range(since), filters, min(limit, KERNELS))
        return {
            "answer": f"{len(found.operations)} operations in {units.format_ns(found.recorded_ns)} recorded",
            "window": {
                "from": rendering.instant(found.window.from_ns),
                "to": rendering.instant(found.window.to_ns),
                "counted_from": word(found.counted_from),
            },
            "operations": [
                rendering.operation_part(each, parts.several(found.operations)) for each in found.operations
            ],
            **parts.kernel_parts(kernels),
            "lost": rendering.losses(found.losses),
        }

    def get_stacks(
        self,
        since: Since = None,
        pid: Pid = None,
        container: Container = None,
        pod: Pod = None,
        namespace: Namespace = None,
        job: Job = None,
        user: User = None,
        op: Op = None,
        limit: Annotated[int, most(100)] = 10,
        detail: HowMuch = "brief",  # noqa: ARG002
    ) -> Answer:
        """Where calls and long waits come from: the line of Python and the frames, innermost first, by
        operation, the place with most time first. Lines that compute between calls: get_process_time."""
        whose = self._known(pid, op, Whose(container, pod, namespace, job, user))
        found = get_stacks(self._source.db, Range(since), pid, op, limit, whose=whose)
        unknown = (
            f"{found.without} of {found.rows} stored calls and waits have no stack" if found.without else None
        )
        return {
            "answer": f"{len(found.stacks)} places"
            if found.stacks
            else "no stacks were recorded in that time",
            "window": {
                "from": rendering.instant(found.window.from_ns),
                "to": rendering.instant(found.window.to_ns),
            },
            "stacks": [parts.stack_part(each, parts.several(found.stacks)) for each in found.stacks],
            "not_watched": [unknown] if unknown else [],
            "lost": rendering.losses(found.losses),
        }

    def graph_lifecycle(
        self,
        since: Since = None,
        pid: Pid = None,
        container: Container = None,
        pod: Pod = None,
        namespace: Namespace = None,
        job: Job = None,
        user: User = None,
        limit: Annotated[int, most(500)] = 25,
        detail: HowMuch = "brief",  # noqa: ARG002
    ) -> Answer:
        """How CUDA graphs came to be: captures, instantiations, updates and destructions in order of time
        with their handles, and how many launches each process made."""
        whose = self._known(pid, None, Whose(container, pod, namespace, job, user))
        found = get_graphs(self._source.db, Range(since), pid, whose=whose)
        several = parts.several(found.processes)
        return {
            "answer": f"{len(found.events)} steps of making and ending graphs, launches apart"
            if found.events or found.processes
            else "no CUDA graph was used in that time",
            "recorded": units.format_ns(found.recorded_ns),
            "processes": [parts.graph_counts(each, several) for each in found.processes],
            "steps": [parts.graph_event(each, several) for each in found.events[:limit]],
            "more_steps": "at least " * found.more_events + str(len(found.events) - limit)
            if len(found.events) > limit
            else None,
            "lost": rendering.losses(found.losses),
        }

    def graph_frequency(
        self,
        since: Since = None,
        pid: Pid = None,
        container: Container = None,
        pod: Pod = None,
        namespace: Namespace = None,
        job: Job = None,
        user: User = None,
        limit: Annotated[int, most(200)] = 20,
        detail: HowMuch = "brief",  # noqa: ARG002
    ) -> Answer:
        """How often each CUDA graph is launched: launches, rate and call time per executable graph, most
        launched first."""
        whose = self._known(pid, None, Whose(container, pod, namespace, job, user))
        found = get_graphs(self._source.db, Range(since), pid, whose=whose)
        several = parts.several(found.processes)
        total = sum(each.launches for each in found.launched)
        return {
            "answer": f"{total} launches of {len(found.launched)} graphs"
            if total
            else "no CUDA graph was launched in that time",
            "recorded": units.format_ns(found.recorded_ns),
            "graphs": [parts.launched_part(each, total, several) for each in found.launched[:limit]],
            "processes": [parts.graph_counts(each, several) for each in found.processes],
            "lost": rendering.losses(found.losses),
        }

    def get_cost(
        self,
        by: Annotated[
            Literal["namespace", "job", "user", "pod", "owner", "container", "node", "process"] | None,
            Field(description="One line for each; left out: the first of these that is known."),
        ] = None,
        price: Annotated[
            float | None, Field(ge=0, le=1e6, description="Of a GPU for an hour; left out: as configured.")
        ] = None,
        since: Since = None,
        container: Container = None,
        pod: Pod = None,
        namespace: Namespace = None,
        job: Job = None,
        user: User = None,
        limit: Annotated[int, most(200)] = 20,
        detail: HowMuch = "brief",  # noqa: ARG002
    ) -> Answer:
        """What GPUs cost by tenant: GPU time held, busy, lost to which finding and idle, which sum to
        held, the money, and how efficient each was."""
        source = self._source
        prices = costs.prices_of(source.config.cost, price)
        wanted = Range(since)
        whose = Whose(container, pod, namespace, job, user)
        report = functools.partial(source.report, wanted, None)  # of everybody: findings are found by victim
        found = costs.get_cost(source.db, wanted, prices, by, whose=whose, report=report)
        return parts.cost_part(found, limit)

    def run_sql(
        self,
        query: Annotated[
            str, Field(min_length=1, max_length=20_000, description="One SELECT, WITH or EXPLAIN.")
        ],
        limit: Annotated[int, most(1000)] = 50,
        detail: HowMuch = "brief",  # noqa: ARG002
    ) -> Answer:
        """Runs one reading SQL statement (SQLite) over the recording. Nothing can be changed; rows, time and
        memory are limited, so aggregate in SQL. Prefer the other tools: they resolve names."""
        allowed = units.parse_duration(str(self._source.config.query.timeout)) / units.SECOND
        limits = Limits(rows=limit, bytes=SQL_BYTES, seconds=min(allowed, SQL_SECONDS))
        found = ask_sql(self._source.db, query, limits)
        return {
            "answer": f"{len(found.rows)} rows" + (", there are more" if found.truncated else ""),
            "columns": [word(column) for column in found.columns],
            "rows": [[parts.cell(row[column]) for column in found.columns] for row in found.rows],
            **({"notes": found.notes} if found.notes else {}),
        }

    def run_demo(self, scenario: Scenario = "incident", detail: HowMuch = "brief") -> Answer:
        """Records a made-up GPU job in trouble into a database of its own and diagnoses it: shows what
        answers look like without a GPU. Does not touch the recording the other tools read."""
        summary, report = mcp_source.play(scenario)
        return {
            "answer": f"made up, to show how it looks: {summary}",
            "diagnosis": _verdict(report),
            "window": rendering.window(report),
            "chains": [rendering.finding_chain(each, detail == "full") for each in report.findings],
            **_footer(report),
        }

    def query_fleet(
        self,
        action: Annotated[
            Literal["overview", "chains", "ops", "sql"], Field(description="What to ask every node.")
        ] = "overview",
        since: Since = None,
        pid: Pid = None,
        query: Annotated[str | None, Field(max_length=20_000, description="The SQL, for sql.")] = None,
        limit: Annotated[int, most(1000)] = 50,
        detail: HowMuch = "brief",
    ) -> Answer:
        """Asks the same of many nodes at once: overview (who answers, events, findings, clocks), chains
        (causal chains of all nodes, worst first), ops (what calls cost on each), sql (rows with their node;
        every node runs it over its own recording). Says who did not answer, and whose clock is off."""
        fleet = self._source.fleet()
        if fleet is None:
            return {
                "answer": "no nodes are configured, so there is no fleet to ask",
                "action": action,
                "hint": "fleet.nodes in ingero.yaml names them; for this node use get_causal_chains.",
            }
        if action == "sql" and not query:
            raise UsageError("sql needs a query", hint="As in SELECT node, count(*) FROM events GROUP BY 1.")
        return ask_nodes(fleet, action, since, pid, query, limit, detail == "full")

    def get_fleet_status(
        self,
        cluster: Chosen = None,
        node: Chosen = None,
        job: Chosen = None,
        namespace: Chosen = None,
        finding: Chosen = None,
        state: Literal["silent", "critical", "straggling", "high", "medium", "low", "fine"] | None = None,
        limit: Annotated[int, most(500)] = 20,
        detail: HowMuch = "brief",
    ) -> Answer:
        """How all nodes of the fleet do, worst first, from the collector they tell: state, who straggles
        behind its peers and why, findings, pace, GPUs. For one of them get_node_history."""
        words = {
            "cluster": cluster, "node": node, "job": job, "namespace": namespace, "finding": finding,
            "state": state, "limit": limit,
        }  # fmt: skip
        return mcp_fleet.status_part(self._collector().status(words), detail == "full")

    def get_node_history(
        self,
        node: Annotated[str, Field(max_length=256, description="Its name, as in get_fleet_status.")],
        cluster: Annotated[str, Field(max_length=128, description="Its cluster.")] = "",
        hours: Annotated[float, Field(gt=0, le=24, description="How far back.")] = 1.0,
        detail: HowMuch = "brief",
    ) -> Answer:
        """One node's last hours, from the collector: pace against its own usual, GPUs busy, records dropped,
        and findings with when they began and ended."""
        return mcp_fleet.history_part(self._collector().history(cluster, node, hours), detail == "full")

    def _known(self, pid: int | None, op: str | None, whose: Whose) -> Whose:
        """An answer about somebody who is not there would look like one about somebody idle."""
        require_known(self._source.db, Filters(pid, op, **asdict(whose)))
        return whose

    def _collector(self) -> FleetSource:
        found = self._source.collector()
        if found is None:
            raise UsageError(
                "no collector is configured, so nobody knows the fleet",
                hint="collector.address in ingero.yaml names it; query_fleet asks nodes directly.",
            )
        return found


def _verdict(report: Report) -> str:
    if report.findings:
        worst = report.findings[0]
        more = f", and {len(report.findings) - 1} more" if len(report.findings) > 1 else ""
        return f"{word(worst.severity)}: {word(worst.kind)}{more}"
    if not any(map(feeds_gpu, report.processes)):
        return "no CUDA process was seen in that time"
    if report.unexplained:
        return "slower than usual, and no cause could be proven"
    whole = not report.losses and not report.not_watched
    return "no problem found" if whole else "no problem found in what was watched"


def _system(report: Report) -> str:
    system = report.system
    load = "-" if system.load1 is None else f"{system.load1:.1f}"
    return (
        f"CPU {units.format_share(system.cpu_share)}, memory {units.format_share(system.memory_share)},"
        f" load {load} on {system.cores or '-'} cores, swap {units.format_bytes(system.swap_bytes)}"
        + "".join(f"; {_card(card)}" for card in system.gpus[:8])
    )


def _card(card: GpuLine) -> str:
    state = "lost" if card.lost else f"busy {units.format_share(card.gpu_share)}"
    used, size = units.format_bytes(card.memory_used_bytes), units.format_bytes(card.memory_bytes)
    held = f", clock reasons {' '.join(card.clock_reasons)}" if card.clock_reasons else ""
    where = f"{name(card.node)} " if card.node else ""
    return f"{where}GPU {card.gpu_id} {state}, memory {used} of {size}{held}"


def _footer(report: Report) -> Answer:
    overhead = report.overhead
    return {
        "lost": rendering.losses(report.losses),
        "not_watched": rendering.not_watched(report.not_watched),
        "tracing_cost": units.format_share(overhead.share) if overhead.share is not None else "not known",
        "own_cost": own_cost_words(overhead) or "not known",
        "reduced_to_stay_within_budget": [
            f"{each.what}: {each.before} -> {each.after}" for each in overhead.actions[-5:]
        ],
    }
