"""Where the time of each process and each container went, out of the diagnosis."""

from __future__ import annotations

import msgspec

from ingero.model.report import ProcessReport, Report
from ingero.model.words import BUCKET_WORDS
from ingero.serve.answers.query import WindowAnswer


class ThreadTime(msgspec.Struct, frozen=True):
    tid: int
    comm: str
    feeder: bool
    ns: int
    time: dict[str, int]


class Accounted(msgspec.Struct, frozen=True):
    """Time of threads by bucket; the buckets sum to `threads_ns`."""

    name: str
    node: str
    pid: int | None  # None: a container
    container: str | None
    processes: int
    threads_ns: int
    time: dict[str, int]
    gpu_idle_ns: int | None
    threads: list[ThreadTime]


class AccountingAnswer(msgspec.Struct, frozen=True):
    """Most time first. A process without accounted time is listed with none."""

    window: WindowAnswer
    buckets: dict[str, str]  # their names, and what they are called among people
    processes: list[Accounted]
    containers: list[Accounted]


def accounting(report: Report) -> AccountingAnswer:
    processes = sorted((_process(each, report.node) for each in report.processes), key=_most_time_first)
    groups: dict[tuple[str, str | None], list[Accounted]] = {}
    for each in processes:
        groups.setdefault((each.node, each.container), []).append(each)
    containers = sorted((_container(*key, members) for key, members in groups.items()), key=_most_time_first)
    window = WindowAnswer(report.window.from_ns, report.window.to_ns)
    return AccountingAnswer(window, dict(BUCKET_WORDS), processes, containers)


def _most_time_first(each: Accounted) -> tuple[int, str]:
    return -each.threads_ns, each.name


def _process(each: ProcessReport, node: str) -> Accounted:
    threads = [ThreadTime(one.tid, one.comm, one.feeder, one.ns, one.time) for one in each.threads]
    return Accounted(
        each.comm, each.node or node, each.pid, each.container, 1, each.threads_ns, each.time,
        each.gpu_idle_ns, threads,
    )  # fmt: skip


def _container(node: str, container: str | None, members: list[Accounted]) -> Accounted:
    time: dict[str, int] = {}
    for each in members:
        for bucket, ns in each.time.items():
            time[bucket] = time.get(bucket, 0) + ns
    idle = [each.gpu_idle_ns for each in members if each.gpu_idle_ns is not None]
    return Accounted(
        container or "outside containers", node, None, container, len(members),
        sum(each.threads_ns for each in members), time, sum(idle) if idle else None, [],
    )  # fmt: skip
