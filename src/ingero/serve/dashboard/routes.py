"""Every route of the API: what it is asked with, what answers it, and what comes back.

The application and the OpenAPI document are both made from this table. A route renders
nothing and computes nothing: it asks serve/answers.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from ingero import __version__
from ingero.model.report import Report
from ingero.serve.answers.accounting import AccountingAnswer, accounting
from ingero.serve.answers.asked_nodes import FleetState, get_fleet
from ingero.serve.answers.collectives import CollectivesAnswer, get_collectives
from ingero.serve.answers.cost import CostAnswer, get_cost, prices_of
from ingero.serve.answers.event_detail import EventAnswer, get_event
from ingero.serve.answers.flame import FlameAnswer, get_flame
from ingero.serve.answers.gpu_series import GpusAnswer, get_gpus
from ingero.serve.answers.graphs import GraphsAnswer, get_graphs
from ingero.serve.answers.heatmap import HeatmapAnswer, get_heatmap
from ingero.serve.answers.json_schemas import ViewsAnswer, get_views
from ingero.serve.answers.kernels import KernelsAnswer
from ingero.serve.answers.labels import Labels
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import (
    LabelledAnswer,
    Limits,
    Range,
    SqlAnswer,
    StatisticsAnswer,
    ask_by_label,
    ask_kernels,
    ask_sql,
    ask_statistics,
)
from ingero.serve.answers.recordings import MOST_BYTES, RecordingsAnswer, get_recordings
from ingero.serve.answers.stacks import StacksAnswer, get_stacks
from ingero.serve.answers.whose import TenantsAnswer, Whose, get_tenants
from ingero.serve.answers.zoom import ZoomAnswer, get_zoom
from ingero.serve.dashboard.source import DashboardSource

# What can be asked, as types: the parameters of each route, checked and documented from here.

RECORDING = "application/vnd.sqlite3"
Text = Annotated[str, Meta(max_length=300)]
Names = Annotated[str, Meta(max_length=2000)]
Count = Annotated[int, Meta(ge=1, le=10_000)]
Pid = Annotated[int, Meta(ge=0, le=2**31)]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Between(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"start": "from", "end": "to"},
):
    """A stretch of time."""

    since: Annotated[Text | None, Meta(description="As in 5m: back from now, or the last record.")] = None
    start: Annotated[Text | None, Meta(description="An instant: ISO 8601, or Unix seconds.")] = None
    end: Annotated[Text | None, Meta(description="An instant, excluded.")] = None

    @property
    def range(self) -> Range:
        return Range(self.since, self.start, self.end)


class When(Between, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stretch of time of one node, or of all; without any, the whole last recording."""

    node: Annotated[Text | None, Meta(description="One node of a merged database.")] = None


class OfTenant(When, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, of one tenant where asked for; several of these at once are combined with "and"."""

    container: Annotated[Text | None, Meta(description="Its id, or the beginning of it, or name.")] = None
    pod: Annotated[Text | None, Meta(description="Its name, or NAMESPACE/POD.")] = None
    namespace: Text | None = None
    job: Annotated[Text | None, Meta(description="Of Slurm, ECS, Ray, torchrun, or a pod's owner.")] = None
    user: Text | None = None

    @property
    def whose(self) -> Whose:
        return Whose(self.container, self.pod, self.namespace, self.job, self.user)

    @property
    def filters(self) -> Filters:
        return Filters(None, None, self.container, self.pod, self.namespace, self.job, self.user)


class OfProcess(OfTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, of one process where asked for."""

    pid: Pid | None = None

    @property
    def filters(self) -> Filters:
        return dataclasses.replace(super().filters, pid=self.pid)


class OfOperations(OfProcess, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, narrowed further; at most `limit` rows."""

    op: Text | None = None
    limit: Count = 100

    @property
    def filters(self) -> Filters:
        return dataclasses.replace(super().filters, op=self.op)


class OfGroups(OfOperations, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, one group for each value of a label, or for each tenant."""

    by: Annotated[
        Text,
        Meta(min_length=1, description="namespace, pod, job, user, container, node; or a label as step."),
    ] = "node"


class OfCost(OfTenant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, one line for each of these; a price is every GPU's."""

    by: Text | None = None
    price: Annotated[float, Meta(ge=0, le=1e6)] | None = None


class OnScreen(OfProcess, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to draw on so many points."""

    width: Annotated[int, Meta(ge=1, le=20_000, description="Points of the screen.")] = 1000


class OfStacks(OfProcess, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is weighed: calls, allocations, waits or samples."""

    what: Text = "calls"
    op: Text | None = None

    @property
    def filters(self) -> Filters:
        return dataclasses.replace(super().filters, op=self.op)


class OfEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An id such as gpu-node-01:4821."""

    id: Text


class Sql(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reading statement over the views."""

    sql: Annotated[str, Meta(max_length=100_000)]
    limit: Count = 1000
    node: Text | None = None
    exact: Annotated[bool, Meta(description="Integers that JavaScript would round come as text.")] = False


class OfRecording(Between, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part; without a range everything, or with `last` the last recording."""

    tables: Annotated[Names | None, Meta(description="Only these, with commas between.")] = None
    last: bool = False
    most_bytes: Annotated[int, Meta(ge=1, description="Larger ones are refused.")] = MOST_BYTES


SQL_SECONDS = 20.0
LARGEST = 1 << 53  # above it a number of JavaScript has no room for the last digits


class Health(msgspec.Struct, frozen=True):
    """That it answers, and what time it is here: clocks of nodes are compared by it."""

    version: str
    now_ns: int
    instance: str  # of this server until it ends: whoever reaches it by two addresses can tell
    nodes: tuple[str, ...]  # in its recording; none where that cannot be read


class CollectorPage(msgspec.Struct, frozen=True):
    """Empty: no collector is configured, or only one without TLS."""

    page: str


class Route(NamedTuple):
    """`ask` is called with the database and the checked parameters, in a thread of its own."""

    path: str
    summary: str
    asked: type[msgspec.Struct]
    answer: type
    ask: Callable[[DashboardSource, Any], Any]
    method: str = "GET"
    kept: bool = True  # the same until the database changes
    elsewhere: bool = True  # may be asked of another node of the fleet


def _health(source: DashboardSource) -> Health:
    nodes = source.nodes  # first: the clock is read as late as possible
    return Health(__version__, time.time_ns(), source.instance, nodes)


def _rows(source: DashboardSource, asked: Sql) -> SqlAnswer:
    answer = ask_sql(source.db, asked.sql, Limits(rows=asked.limit, seconds=SQL_SECONDS), asked.node)
    if not asked.exact:
        return answer
    rows = [{name: _as_text(value) for name, value in row.items()} for row in answer.rows]
    return msgspec.structs.replace(answer, rows=rows)


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and abs(value) >= LARGEST else value


ROUTES = (
    Route("health", "Whether it answers, its version and its clock", Nothing, Health,
          lambda s, _: _health(s), kept=False),
    Route("fleet", "Nodes that can be asked through this server", Nothing, FleetState,
          lambda s, _: get_fleet(s.fleet()), kept=False, elsewhere=False),
    Route("collector", "Where the collector shows all nodes", Nothing, CollectorPage,
          lambda s, _: CollectorPage(s.fleet_page), kept=False, elsewhere=False),
    Route("recordings", "Nodes, recordings and the time they cover", When, RecordingsAnswer,
          lambda s, a: get_recordings(s.db, a.range, a.node), kept=False),
    Route("explain", "The diagnosis, as `ingero explain --json` prints it", OfProcess, Report,
          lambda s, a: s.report(a.range, a.node, a.pid, a.whose)),
    Route("accounting", "Where the time of each process and container went", OfProcess, AccountingAnswer,
          lambda s, a: accounting(s.report(a.range, a.node, a.pid, a.whose))),
    Route("operations", "Per-operation statistics", OfOperations, StatisticsAnswer,
          lambda s, a: ask_statistics(s.db, a.range, a.filters, a.limit, a.node)),
    Route("grouped", "Statistics by operation and tenant, or value of a label", OfGroups, LabelledAnswer,
          lambda s, a: ask_by_label(s.db, a.range, a.filters, a.limit, a.node, Labels(by=a.by))),
    Route("kernels", "Launches by kernel", OfOperations, KernelsAnswer,
          lambda s, a: ask_kernels(s.db, a.range, a.filters, a.limit, a.node)),
    Route("heatmap", "Latencies over time, by operation", OfOperations, HeatmapAnswer,
          lambda s, a: get_heatmap(s.db, a.range, a.filters, min(a.limit, 50), a.node)),
    Route("timeline", "What to draw of a stretch of time", OnScreen, ZoomAnswer,
          lambda s, a: get_zoom(s.db, a.range, a.width, a.node, a.pid, a.whose)),
    Route("event", "One event with its stack", OfEvent, EventAnswer,
          lambda s, a: get_event(s.db, a.id)),
    Route("flame", "Stacks as a tree", OfStacks, FlameAnswer,
          lambda s, a: get_flame(s.db, a.range, a.what, a.pid, a.op, a.node, a.whose)),
    Route("stacks", "Stacks with most time, by operation", OfOperations, StacksAnswer,
          lambda s, a: get_stacks(s.db, a.range, a.pid, a.op, min(a.limit, 100), a.node, a.whose)),
    Route("tenants", "Namespaces, pods, jobs and users there are", When, TenantsAnswer,
          lambda s, a: get_tenants(s.db, a.node)),
    Route("gpus", "GPUs and their counters", When, GpusAnswer,
          lambda s, a: get_gpus(s.db, a.range, a.node)),
    Route("cost", "What GPUs cost by tenant, and what of it was lost to what", OfCost, CostAnswer,
          lambda s, a: get_cost(s.db, a.range, prices_of(s.cost, a.price), a.by, a.node, a.whose,
                                report=lambda: s.report(a.range, a.node, None))),
    Route("graphs", "CUDA graphs", OfProcess, GraphsAnswer,
          lambda s, a: get_graphs(s.db, a.range, a.pid, a.node, a.whose)),
    Route("collectives", "Collectives by communicator and rank", When, CollectivesAnswer,
          lambda s, a: get_collectives(s.db, a.range, a.node)),
    Route("schema", "Views and columns that SQL can read", Nothing, ViewsAnswer,
          lambda _, __: get_views()),
    Route("query", "Rows of one read-only statement", Sql, SqlAnswer,
          lambda s, a: _rows(s, a), method="POST", kept=False),
)  # fmt: skip
