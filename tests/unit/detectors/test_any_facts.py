"""Whatever was recorded, the diagnosis answers, and its numbers add up."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ingero.model.facts import Arrival, ErrorFact, Incident, InFlight, LossFact
from ingero.model.gpu_facts import CardTrouble
from ingero.model.window import BUCKET_NAMES
from tests import contradictions
from tests.facts import OPS, SECOND, Story

PIDS = (100, 101, 200, 300, 999)
SLICES = 8
# Without the phase that explains: it traces every line, and a failure would end as a timeout.
ANY: Any = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
}
milliseconds = st.sampled_from((0, 0, 0, 1, 50, 300, 700, 1500, 2500))
counts = st.sampled_from((0, 1, 3, 40, 200, 5000, 10**7))
pids = st.sampled_from(PIDS)
numbers = st.integers(0, SLICES - 1)
instants = st.integers(-SECOND, SLICES * 2 * SECOND)
spans = st.tuples(instants, instants).map(lambda both: (min(both), max(both)))


@st.composite
def stories(draw: st.DrawFn) -> Story:
    story = Story(SLICES)
    for pid in PIDS:
        container = draw(st.sampled_from((None, "abc", "def")))
        listens = draw(st.sampled_from((None, False, True)))
        story.process(
            pid, f"p{pid}", draw(st.sampled_from((None, 0, 1, *PIDS))), container=container, listens=listens
        )
    for _ in range(draw(st.integers(0, 12))):
        _draw_thread(draw, story)
    for name in draw(st.lists(st.sampled_from([op.name for op in OPS.values()]), max_size=8)):
        parts = {"gpu_wait": draw(milliseconds), "runqueue": draw(milliseconds)}
        story.calls(
            name, draw(counts), draw(milliseconds), draw(pids), _some(draw), size=draw(counts),
            caller=draw(st.integers(0, 2)), split=parts, errors=draw(st.integers(0, 3)),
        )  # fmt: skip
    for _ in range(draw(st.integers(0, 6))):
        victim = draw(pids)
        story.culprit(draw(pids), "c", draw(milliseconds), victim, draw(st.booleans()), _some(draw))
        bucket = draw(st.sampled_from(("lock_wait", "peer_wait")))
        story.waker(draw(pids), "w", bucket, draw(milliseconds), draw(pids), when=_some(draw))
    _draw_incidents(draw, story)
    _draw_cards(draw, story)
    return story


def _draw_cards(draw: st.DrawFn, story: Story) -> None:
    odd = st.sampled_from((float("nan"), 0.0, 0.04, 0.5, 1.0, 900.0, 1e12))
    cards = st.integers(0, 2)
    # a slice has one row of a card, and one of a process on it: the reader groups by them
    for card in draw(st.lists(cards, max_size=3, unique=True)):
        names = ("gpu_share", "busy_clock_mhz", "forced_share", "capped_share", "reasons", "pcie_gen")
        seen = {name: draw(odd) for name in names} | {"pcie_width": draw(odd), "power_limit_mw": draw(odd)}
        story.looked(card, _some(draw), **seen)
    for pid, card in draw(st.lists(st.tuples(pids, cards), max_size=3, unique=True)):
        sm, memory = draw(st.sampled_from((None, 0.0, 0.5, 1.0))), draw(st.sampled_from((None, 0, 1 << 40)))
        story.on_card(pid, card, sm, memory, _some(draw))
    if draw(st.booleans()):
        story.facts.cards.trouble.append(CardTrouble(draw(cards), 1, True, True, 0, SECOND))


def _some(draw: st.DrawFn) -> range:
    first = draw(numbers)
    return range(first, draw(st.integers(first, SLICES)) + 1)


def _draw_thread(draw: st.DrawFn, story: Story) -> None:
    row = {
        name: draw(milliseconds) * 1_000_000
        for name in ("throttled_ns", "late_ns", "gil_ns")
    }  # fmt: skip
    ns = [draw(milliseconds) * 1_000_000 for _ in BUCKET_NAMES]
    gap = [draw(st.sampled_from((0, value // 2, value))) for value in ns]
    pid = draw(pids)
    feeder, tid = draw(st.booleans()), draw(st.sampled_from((pid, 101, 102)))
    for number in _some(draw):
        story._add(
            "threads",
            slice=number,
            pid=pid,
            tid=tid,
            comm=story.name("t"),
            feeder=feeder,
            ns=ns,
            gap=gap,
            **row,
        )


def _draw_incidents(draw: st.DrawFn, story: Story) -> None:
    facts = story.facts
    codes = st.sampled_from((1, 2, 35, 79, 209, 700, 900))
    names = st.none() | st.just("x")

    def several(made: st.SearchStrategy[Any], most: int = 4) -> list[Any]:
        return draw(st.lists(made, max_size=most))

    incidents = st.builds(Incident, instants, st.none() | pids, names, st.just("n:1"), st.none() | codes)
    facts.ooms, facts.xids, facts.retransmits = several(incidents), several(incidents), several(incidents)
    facts.errors = several(
        spans.flatmap(
            lambda span: st.builds(
                ErrorFact, pids, pids, st.just("cudaMalloc"), codes, st.integers(1, 9), st.just(span[0]),
                st.just(span[1]), st.just("n:1"),
            )
        )
    )  # fmt: skip
    facts.in_flight = several(
        spans.map(lambda span: InFlight(100, 100, "cudaStreamSynchronize", *span, "gpu_wait"))
    )
    facts.losses = several(spans.map(lambda span: LossFact("ring_thread", 3, *span)))
    facts.arrivals = several(
        st.builds(
            Arrival, st.just(7), st.integers(0, 9), st.just("ncclAllReduce"), st.integers(0, 1),
            st.sampled_from((0, 1, 2)), pids, instants, st.none(),
        ),
        30,
    )  # fmt: skip
    facts.cores = draw(st.sampled_from((None, 1, 2, 64)))
    every = draw(st.sampled_from((1, 10, 100)))
    ends = np.cumsum(np.where(np.arange(300) % every, 10_000_000, 400_000_000))
    facts.marks = lambda pid, op: np.stack([ends, np.zeros_like(ends)], axis=1)


@settings(max_examples=60, **ANY)
@given(stories())
def test_the_diagnosis_answers_and_its_numbers_add_up(story: Story) -> None:
    diagnosis = story.diagnose()
    for finding in diagnosis.findings:
        assert 0 <= finding.confidence <= 1
        assert finding.first_ns <= finding.last_ns
        assert msgspec.json.encode(finding)
        if finding.effect.excess_ns is None:
            # a state; only a wait that does not end is time and has a cause
            shares = sum(cause.share for cause in finding.causes)
            assert shares == (1 if finding.kind == "nccl-hang" else 0)
            continue
        assert finding.effect.excess_ns > 0
        assert 0.03 <= (finding.effect.wall_share or 0) <= 1
        assert all(cause.ns >= 0 for cause in finding.causes)
        assert not list(contradictions.in_numbers(finding))
    late = {
        who.pid
        for finding in diagnosis.findings
        if finding.kind == "nccl-straggler"
        for cause in finding.causes
        for who in cause.who
    }  # what makes that rank late comes after it, however bad
    ranks = [each.severity.rank for each in diagnosis.findings if each.victim.pid not in late]
    assert ranks == sorted(ranks)


@settings(max_examples=30, **ANY)
@given(stories())
def test_the_same_facts_have_the_same_answer_in_whatever_order_they_were_read(story: Story) -> None:
    told = [(each.kind, each.victim.pid, each.severity) for each in story.findings()]
    timeline_rows = {table: list(reversed(rows)) for table, rows in story.rows.items() if table != "threads"}
    story.rows |= timeline_rows
    assert [(each.kind, each.victim.pid, each.severity) for each in story.findings()] == told
