"""Times of a node's report are moved, durations are not."""

from __future__ import annotations

import typing

import msgspec

from ingero.model.report import Report
from ingero.serve.answers.nodes_report import INSTANTS, PAIRS, moved
from tests.builders import EPOCH_NS, SECOND, finding

DURATIONS = {
    "p50_ns", "p95_ns", "p99_ns", "max_ns", "usual_ns", "now_ns", "held_ns", "wall_ns", "threads_ns",
    "gpu_idle_ns", "cpu_taken_ns", "estimated_ns", "took_ns", "recorded_ns", "excess_ns", "over_ns",
}  # fmt: skip


def structs(kind: object, seen: set[type[msgspec.Struct]]) -> None:
    for each in (kind, *typing.get_args(kind)):
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each not in seen:
            seen.add(each)
            for field in msgspec.structs.fields(each):
                structs(field.type, seen)
        elif each is not kind:
            structs(each, seen)


def test_every_field_of_a_report_is_known_to_be_an_instant_or_a_duration() -> None:
    seen: set[type[msgspec.Struct]] = set()
    structs(Report, seen)
    named = {name for kind in seen for name in kind.__struct_fields__ if name.endswith("_ns")}
    assert len(seen) > 10
    assert named - INSTANTS - DURATIONS == set()
    assert not INSTANTS & DURATIONS


def test_a_finding_is_moved_with_its_episodes_and_nothing_else_changes() -> None:
    before = finding()
    after = moved([before], -3 * SECOND)[0]
    assert (after.first_ns, after.last_ns) == (EPOCH_NS - 3 * SECOND, EPOCH_NS + 5 * SECOND)
    assert after.episodes[0] == (EPOCH_NS - 3 * SECOND, EPOCH_NS + 2 * SECOND)
    changed = {"first_ns", "last_ns", *PAIRS}
    assert msgspec.structs.replace(after, **{name: getattr(before, name) for name in changed}) == before
    assert moved(before, 0) is before
