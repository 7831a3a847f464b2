"""Who started whom, also where what /proc said makes no sense."""

from __future__ import annotations

from ingero.correlate.tables import MAX_GENERATIONS, Family
from ingero.model.facts import ProcessFact


def family(**parents: int | None) -> Family:
    """family(p5=3): process 5 was started by 3."""
    return Family({int(k[1:]): ProcessFact(int(k[1:]), "x", parent_pid=v) for k, v in parents.items()})


def test_children_and_their_children_work_for_the_one_who_started_them() -> None:
    known = family(p30=20, p20=10, p10=1)
    assert known.works_for(30, 10)
    assert known.works_for(10, 10)
    assert not known.works_for(10, 30)
    assert known.related(10, 30)


def test_siblings_are_not_related_to_each_other() -> None:
    known = family(p20=10, p21=10, p10=1)
    assert not known.related(20, 21)


def test_init_is_nobodys_boss() -> None:
    known = family(p20=1, p21=1)
    assert known.ancestors(20) == []
    assert not known.works_for(20, 1)


def test_parents_in_a_ring_end() -> None:
    known = family(p20=30, p30=20, p40=40)
    assert len(known.ancestors(20)) <= MAX_GENERATIONS
    assert known.works_for(20, 30)
    assert not known.works_for(20, 99)
    assert len(known.ancestors(40)) <= MAX_GENERATIONS


def test_a_process_nobody_knows_has_no_ancestors() -> None:
    assert family().ancestors(7) == []
    assert family(p7=None).ancestors(7) == []
