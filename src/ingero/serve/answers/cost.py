"""What GPUs cost: hours held, busy, lost to which finding and idle, by tenant, and the money.

held = busy + lost to findings + idle without a finding + unknown, to the nanosecond, for
every line and for the total. A finding is charged with the time its victim's GPU was idle
while it lasted, at most what the finding says it cost; where findings overlap and together
say more than the GPU was idle, each is cut in proportion. Findings come from the diagnosis
that `explain` shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ingero.config_tenants import Cost
from ingero.errors import StoreError, UsageError
from ingero.model.finding import Finding
from ingero.model.gpus import Prices
from ingero.model.report import Report
from ingero.serve.answers.cost_use import UNKNOWN_GPU, Floats, Rows, by_driver, lost_to, money_of, use_within
from ingero.serve.answers.efficiency import Efficiency, EfficiencyFacts, efficiency_of, facts_within
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.operations import recorded_ns
from ingero.serve.answers.query import Range, WindowAnswer
from ingero.serve.answers.whose import (
    EVERYBODY,
    JOINED,
    LONGEST_NAME,
    NAMES,
    UNNAMED,
    Whose,
    processes_of,
    require_whose,
)
from ingero.serve.answers.window import TimeRange, time_range
from ingero.store.location import last_path
from ingero.store.reader import Reader
from ingero.units import clean

# How lines can be told apart, and which column of a process says it; the first that is known is usual.
GROUPS = {
    "namespace": "namespace", "job": "job", "user": "user", "pod": "pod", "owner": "owner",
    "container": "container_id", "node": "node", "process": "process",
}  # fmt: skip
USUAL = ("namespace", "job", "user", "process")
NOBODY = "(nobody)"  # GPUs that no process held
_WHO = f"""
    SELECT p.id, n.name, p.pid, p.comm, COALESCE(p.start_ns, p.first_seen_ns, 0), COALESCE(p.end_ns, 0),
        o.value, {", ".join(NAMES.values())}
    {JOINED}
    LEFT JOIN container_label o ON o.cgroup_id = p.cgroup_id AND o.node_id = p.node_id AND o.key = 'owner'"""
_MODELS = "SELECT node_id, gpu_id, name FROM gpu ORDER BY last_ns"


def prices_of(said: Cost, price: float | None = None) -> Prices:
    """As configured; a price that is given is every GPU's."""
    if price is not None:
        return Prices(price, {}, said.currency)
    return Prices(said.price, dict(said.prices), said.currency)


class LostTo(msgspec.Struct, frozen=True):
    kind: str
    ns: int
    money: float | None


class CostLine(msgspec.Struct, frozen=True):
    """GPU time of one tenant: held = busy + lost + idle + unknown. Money is None where there is no price."""

    name: str
    processes: int
    gpus: dict[str, int]  # model, and how many of them it held
    held_ns: int
    busy_ns: int
    lost: list[LostTo]  # most first
    lost_ns: int
    idle_ns: int  # and no finding says why
    unknown_ns: int  # how busy it was is not known
    money: float | None
    money_busy: float | None
    money_lost: float | None  # what fixing the findings saves
    money_idle: float | None
    efficiency: Efficiency


SUMMED = ("processes", "held_ns", "busy_ns", "lost_ns", "idle_ns", "unknown_ns")
MONEY = ("money", "money_busy", "money_lost", "money_idle")


class CostAnswer(msgspec.Struct, frozen=True):
    """`total` is the sum of `lines`; `free` are GPUs that nobody held, which the total has not."""

    window: WindowAnswer
    anchor: str
    recorded_ns: int
    by: str
    prices: Prices
    estimated: list[str]  # nodes whose driver was not asked: by calls alone
    unpriced: list[str]  # models without a price
    lines: list[CostLine]  # the dearest first
    total: CostLine
    free: CostLine | None


class _Person(msgspec.Struct, frozen=True):
    node: str
    pid: int
    start_ns: int
    end_ns: int
    names: dict[str, str | None]


def get_cost(
    db: Path | None,
    wanted: Range,
    prices: Prices,
    by: str | None = None,
    node: str | None = None,
    whose: Whose = EVERYBODY,
    now_ns: int | None = None,
    report: Callable[[], Report] | None = None,
) -> CostAnswer:
    """Of a recording, or a part of it. `report`: who has the diagnosis of that time already."""
    if by is not None and by not in GROUPS:
        raise UsageError(f"cannot group by {clean(by, 40)!r}", hint=f"Choose one of {', '.join(GROUPS)}.")
    now_ns = time.time_ns() if now_ns is None else now_ns
    path = db or last_path()
    with Reader(path, node) as reader:
        when = time_range(reader, wanted.since, wanted.start, wanted.end, now_ns)
        recorded = recorded_ns(reader, when)
        if not recorded:
            raise StoreError(f"nothing was recorded in that time in {path}", hint="Choose a longer time.")
        use = use_within(reader, when)
        people = _people(reader)
        rows, free = use.rows, use.free
        if whose:
            require_whose(reader, whose)
            # By id: pids are not unique over the nodes of a merged recording.
            rows, free = rows[np.isin(rows["process"], processes_of(reader, whose) or ())], free[:0]
        models = _models(reader)
        nodes = dict(reader.rows("SELECT id, name FROM node"))
        facts = facts_within(reader, when)
    told = report() if report else get_report(path, wanted, now_ns=now_ns, node=node)
    findings = told.findings
    ledger = _Ledger(rows, people, findings, models, prices, facts)
    chosen = by or _usual(people, rows)
    efficiency = efficiency_of(rows, np.unique(rows["process"]).tolist(), facts)
    lines = sorted(ledger.lines(chosen), key=lambda line: (-(line.money or 0.0), -line.held_ns, line.name))
    return CostAnswer(
        WindowAnswer(when.from_ns, when.to_ns),
        when.anchor,
        recorded,
        chosen,
        prices,
        sorted(nodes.get(each, "?") for each in use.by_calls),
        sorted({model for model in models.values() if prices.of(model) is None}),
        lines,
        _total(lines, ledger.gpus(rows), efficiency),
        ledger.line(NOBODY, free, counted=False) if len(free) else None,
    )


def lines_by_driver(
    reader: Reader, when: TimeRange, findings: Iterable[Finding], prices: Prices
) -> dict[int, CostLine]:
    """Of each process, by its row, as the driver alone tells it: what metrics say of a recording."""
    rows, _ = by_driver(reader, when)
    ledger = _Ledger(rows, _people(reader), findings, _models(reader), prices, EfficiencyFacts())
    return {
        number: ledger.line("", rows[rows["process"] == number], [number])
        for number in np.unique(rows["process"]).tolist()
    }


def _models(reader: Reader) -> dict[tuple[int, int], str]:
    return {(row[0], row[1]): clean(row[2], 80) for row in reader.rows(_MODELS)}


def _people(reader: Reader) -> dict[int, _Person]:
    found = {}
    for number, node, pid, comm, start, end, owner, *told in reader.rows(_WHO):
        names = dict(zip(NAMES, told, strict=True))
        names |= {"owner": owner, "process": f"{clean(comm or '?', 40)} ({pid})"}
        found[number] = _Person(node or "?", pid, start, end, names)
    return found


def _usual(people: dict[int, _Person], rows: Rows) -> str:
    held = [people[number] for number in np.unique(rows["process"]).tolist() if number in people]
    return next((name for name in USUAL if any(each.names[name] for each in held)), USUAL[-1])


class _Ledger:
    """Rows with a loss to each finding worked out once, for any grouping."""

    def __init__(
        self,
        rows: Rows,
        people: dict[int, _Person],
        findings: Iterable[Finding],
        models: dict[tuple[int, int], str],
        prices: Prices,
        facts: EfficiencyFacts,
    ) -> None:
        self._rows, self._people, self._models, self._prices = rows, people, models, prices
        self._facts = facts
        self._lost: dict[str, Floats] = {}
        by_victim: dict[tuple[str, int], list[Finding]] = {}
        for each in findings:
            by_victim.setdefault((each.node, each.victim.pid), []).append(each)
        for number in np.unique(rows["process"]).tolist():
            person = people.get(number)
            if person is not None:
                self._charge(number, person, by_victim.get((person.node, person.pid), []))

    def _charge(self, number: int, person: _Person, findings: list[Finding]) -> None:
        mine = np.flatnonzero(self._rows["process"] == number)
        its = [
            each
            for each in findings
            # else another process had the number then
            if each.last_ns >= person.start_ns and not (person.end_ns and each.first_ns > person.end_ns)
        ]
        for kind, ns in lost_to(its, self._rows[mine]).items():
            self._lost.setdefault(kind, np.zeros(len(self._rows)))[mine] += ns

    def lines(self, by: str) -> list[CostLine]:
        groups: dict[str, list[int]] = {}
        for number in np.unique(self._rows["process"]).tolist():
            person = self._people.get(number)
            name = person.names[by] if person else None
            groups.setdefault(clean(name, LONGEST_NAME) if name else UNNAMED, []).append(number)
        return [
            self.line(name, self._rows[np.isin(self._rows["process"], members)], members)
            for name, members in groups.items()
        ]

    def line(self, name: str, rows: Rows, members: list[int] | None = None, counted: bool = True) -> CostLine:
        """Integers from here on: what is idle is what is left, so that the parts sum to the whole."""
        members = np.unique(rows["process"]).tolist() if members is None else members
        chosen = np.isin(self._rows["process"], members) if counted else np.zeros(len(self._rows), bool)
        known = ~np.isnan(rows["busy_ns"])
        busy_ns = np.where(known, rows["busy_ns"], 0.0)
        unknown_ns = np.where(known, 0.0, rows["held_ns"])
        lost_ns = {kind: ns[chosen] for kind, ns in self._lost.items() if counted and int(ns[chosen].sum())}
        lost_to_all = sum(lost_ns.values(), np.zeros(len(rows)))
        # What a row costs is its own GPU's price, so no part depends on what else is in the line.
        price = self._price_of(rows)
        lost = sorted(
            (LostTo(kind, int(ns.sum()), money_of(ns, price)) for kind, ns in lost_ns.items()),
            key=lambda each: -each.ns,
        )
        busy, unknown = int(busy_ns.sum()), int(unknown_ns.sum())
        lost_sum = sum(each.ns for each in lost)
        held = max(int(rows["held_ns"].sum()), busy + unknown + lost_sum)  # each was rounded by itself
        idle_ns = np.maximum(rows["held_ns"] - busy_ns - unknown_ns - lost_to_all, 0.0)
        return CostLine(
            name, len(members) if counted else 0, self.gpus(rows), held, busy, lost, lost_sum,
            held - busy - unknown - lost_sum, unknown,
            money_of(rows["held_ns"], price), money_of(busy_ns, price), money_of(lost_to_all, price),
            money_of(idle_ns, price), efficiency_of(rows, members, self._facts) if counted else Efficiency(),
        )  # fmt: skip

    def gpus(self, rows: Rows) -> dict[str, int]:
        """How many of each model, however many share one; each process has one where none is known."""
        found: dict[str, int] = {}
        for node, gpu in _gpus_of(rows):
            model = self._models.get((node, gpu), "GPU")
            those = rows["process"][(rows["node"] == node) & (rows["gpu"] == gpu)]
            found[model] = found.get(model, 0) + (len(np.unique(those)) if gpu == UNKNOWN_GPU else 1)
        return dict(sorted(found.items()))

    def _price_of(self, rows: Rows) -> Floats:
        """Of an hour of each row's GPU; NaN: it has none."""
        found = np.full(len(rows), np.nan)
        for node, gpu in _gpus_of(rows):
            price = self._prices.of(self._models.get((node, gpu)))
            if price is not None:
                found[(rows["node"] == node) & (rows["gpu"] == gpu)] = price
        return found


def _gpus_of(rows: Rows) -> set[tuple[int, int]]:
    return {(int(row["node"]), int(row["gpu"])) for row in np.unique(rows[["node", "gpu"]])}


def _total(lines: list[CostLine], gpus: dict[str, int], efficiency: Efficiency) -> CostLine:
    """What the lines say, added up: nothing is rounded twice."""
    lost: dict[str, list[LostTo]] = {}
    for line in lines:
        for each in line.lost:
            lost.setdefault(each.kind, []).append(each)
    together = [
        LostTo(kind, sum(each.ns for each in parts), _sum(each.money for each in parts))
        for kind, parts in lost.items()
    ]
    sums: dict[str, Any] = {name: sum(getattr(line, name) for line in lines) for name in SUMMED}
    sums |= {name: _sum(getattr(line, name) for line in lines) for name in MONEY}
    return CostLine(
        name="total", gpus=gpus, lost=sorted(together, key=lambda each: -each.ns), efficiency=efficiency,
        **sums,
    )  # fmt: skip


def _sum(values: Iterable[float | None]) -> float | None:
    """Unknown where a part is."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
