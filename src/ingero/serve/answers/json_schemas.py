"""JSON Schema of every answer that commands print with --json.

Taken from the types the answers are made of; a test holds real output against
them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ingero.model.fleet import FleetStatus
from ingero.model.report import Report
from ingero.serve.answers.checks import CheckAnswer, Version
from ingero.serve.answers.compare import Comparison
from ingero.serve.answers.cost import CostAnswer
from ingero.serve.answers.kernels import KernelsAnswer
from ingero.serve.answers.merging import MergeAnswer
from ingero.serve.answers.nodes_recordings import FleetMerge
from ingero.serve.answers.nodes_report import FleetCost, FleetReport
from ingero.serve.answers.nodes_rows import FleetRows, FleetStatistics
from ingero.serve.answers.query import LabelledAnswer, SqlAnswer, StatisticsAnswer
from ingero.serve.answers.schema import NOTES, VIEWS, ViewDoc


class ViewsAnswer(msgspec.Struct, frozen=True):
    """What can be queried."""

    notes: list[str]
    views: list[ViewDoc]


class TraceFrame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One frame of a stack; the columns of `stacks`."""

    kind: str
    function: str
    file: str | None
    line: int | None
    module: str | None


class TraceLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One line of `trace --json`: the columns of `events`, and of `cuda_events` or `nccl_events`.

    The first line with a `stack_hash` has its frames in `stack`, innermost first.
    """

    id: str | None
    node: str
    timestamp: int
    pid: int | None
    tid: int | None
    comm: str | None
    source: int
    op: str
    duration: int | None
    gpu_id: int | None
    arg0: int | None
    arg1: int | None
    ret_code: int | None
    stack_hash: int | None
    cgroup_id: int | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    weight: int
    timestamp_ns: int | UnsetType = UNSET
    duration_ns: int | UnsetType = UNSET
    bytes: int | UnsetType | None = UNSET
    layer: str | UnsetType = UNSET
    caller: str | UnsetType | None = UNSET
    kernel_name: str | UnsetType | None = UNSET
    direction: str | UnsetType | None = UNSET
    stream: int | UnsetType | None = UNSET
    ret: int | UnsetType = UNSET
    comm_hash: str | UnsetType | None = UNSET
    seq: int | UnsetType | None = UNSET
    nranks: int | UnsetType | None = UNSET
    datatype: str | UnsetType | None = UNSET
    reduce_op: str | UnsetType | None = UNSET
    peer: int | UnsetType | None = UNSET
    wait_ns: int | UnsetType | None = UNSET
    stack: list[TraceFrame] | UnsetType = UNSET


# What prints it, and what it is made of.
ANSWERS: dict[str, tuple[str, type]] = {
    "check": ("ingero check --json", CheckAnswer),
    "cost": ("ingero cost --json", CostAnswer),
    "cost-nodes": ("ingero cost --nodes LIST --json", FleetCost),
    "explain": ("ingero explain --json", Report),
    "fleet-status": ("ingero fleet status --json", FleetStatus),
    "explain-compare": ("ingero explain --compare BEFORE AFTER --json", Comparison),
    "explain-nodes": ("ingero explain --nodes LIST --json", FleetReport),
    "merge": ("ingero merge --json", MergeAnswer),
    "merge-nodes": ("ingero merge --nodes LIST --json", FleetMerge),
    "query": ("ingero query --json", StatisticsAnswer),
    "query-by": ("ingero query --by KEY --json", LabelledAnswer),
    "query-kernels": ("ingero query --kernels --json", KernelsAnswer),
    "query-sql": ("ingero query --json 'SELECT ...'", SqlAnswer),
    "query-nodes": ("ingero query --nodes LIST --json", FleetStatistics),
    "query-nodes-sql": ("ingero query --nodes LIST --json 'SELECT ...'", FleetRows),
    "query-schema": ("ingero query --schema --json", ViewsAnswer),
    "trace": ("ingero trace --json, each line", TraceLine),
    "version": ("ingero version --json", Version),
}


def get_views() -> ViewsAnswer:
    return ViewsAnswer(list(NOTES), list(VIEWS))


def get_schema() -> dict[str, Any]:
    """One document: `answers` by name, their parts under `$defs`."""
    types = [kind for _, kind in ANSWERS.values()]
    schemas, parts = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    answers = {
        name: {"description": command, **schema}
        for (name, (command, _)), schema in zip(ANSWERS.items(), schemas, strict=True)
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "answers": answers, "$defs": parts}
