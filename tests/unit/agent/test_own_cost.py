"""What tracing takes beside the hits of its probes."""

from __future__ import annotations

import numpy as np
import pytest

from ingero.agent.own_cost import OwnCost, machine_switches
from ingero.model.window import CULPRIT, Window, empty
from tests.builders import SECOND, culprit, records, thread, window

AGENT, HOG = 999, 200


def second(*culprits: np.ndarray, switched: int = 0) -> Window:
    feeding = thread(host_cpu=SECOND)
    feeding["voluntary_switches"], feeding["involuntary_switches"] = switched, 0
    helper = thread(tid=101, sleep=SECOND)
    helper["feeder"] = False
    return window(0, threads=records(feeding, helper), culprits=records(empty(CULPRIT), *culprits))


def taking(pid: int, ns: int, tid: int = 100) -> np.ndarray:
    row = culprit(pid=pid, ns=ns)
    row["victim_tid"] = tid
    return row


def counting(*values: int | None):
    found = iter(values)
    return lambda: next(found)


def test_cores_the_agent_took_are_named_and_summed() -> None:
    cost = OwnCost(None, 2, counting(0, 0), AGENT)
    each = second(taking(AGENT, SECOND // 10), taking(AGENT, SECOND // 2, tid=101), taking(HOG, SECOND // 4))
    cost.fill(each)
    names = dict(zip(each.culprits["pid"].tolist(), each.culprits["comm"].tolist(), strict=True))
    assert names[AGENT] == b"ingero itself"
    assert names[HOG] != b"ingero itself"
    taken, others = cost.shares(whole=False)
    assert taken == pytest.approx(0.1)  # of the thread that feeds the GPU
    assert others is None  # what a switch costs is not known here


def test_switches_of_others_cost_what_one_was_measured_to_cost() -> None:
    cost = OwnCost(400.0, 4, counting(1_000, 11_500, 21_500), AGENT)
    first, later = second(switched=500), second()
    cost.fill(first)
    assert (first.switches, first.switches_ns) == (10_000, 4_000_000)
    assert cost.shares(whole=False)[1] == pytest.approx(0.001)
    cost.fill(later)
    assert later.switches == 10_000
    assert cost.shares(whole=True) == (0.0, pytest.approx(0.001))


def test_a_machine_that_does_not_tell_its_switches_is_not_known() -> None:
    cost = OwnCost(400.0, 4, counting(None, None), AGENT)
    each = second()
    cost.fill(each)
    assert (each.switches, each.switches_ns) == (None, None)


def test_this_machine_tells() -> None:
    before = machine_switches()
    assert before is not None
    assert machine_switches() >= before  # type: ignore[operator]
