"""What can be asked, as types: the parameters of each route, checked and documented from here."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Range
from ingero.serve.answers.recordings import MOST_BYTES

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


class OfProcess(When, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, of one process where asked for."""

    pid: Pid | None = None

    @property
    def filters(self) -> Filters:
        return Filters(pid=self.pid)


class OfOperations(OfProcess, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same, narrowed further; at most `limit` rows."""

    op: Text | None = None
    container: Annotated[Text | None, Meta(description="Its id, or the beginning of it.")] = None
    pod: Text | None = None
    namespace: Text | None = None
    job: Annotated[Text | None, Meta(description="Of Slurm, ECS, Ray, torchrun, or a pod's owner.")] = None
    user: Text | None = None
    limit: Count = 100

    @property
    def filters(self) -> Filters:
        return Filters(self.pid, self.op, self.container, self.pod, self.namespace, self.job, self.user)


class OfCost(When, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
        return Filters(pid=self.pid, op=self.op)


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
