"""A finding is told when it begins, changes and ends, once each."""

from __future__ import annotations

from ingero.serve.answers.finding_news import FindingNews, What
from tests.builders import EPOCH_NS, SECOND, finding


def test_a_finding_begins_changes_and_ends_once() -> None:
    news = FindingNews()
    looks = [
        (finding(),),
        (finding(),),
        (finding(severity="CRITICAL"),),
        (),
        (),
    ]
    told = [[each.what for each in news.look(findings)] for findings in looks]
    assert told == [[What.BEGAN], [], [What.CHANGED], [What.ENDED], []]


def test_the_begin_stays_where_it_was_while_the_diagnosis_looks_back_less_far() -> None:
    news = FindingNews()
    news.look((finding(),))
    news.look((finding(first_ns=EPOCH_NS + 100 * SECOND, last_ns=EPOCH_NS + 200 * SECOND),))
    (ended,) = news.look(())
    assert (ended.finding.first_ns, ended.finding.last_ns) == (EPOCH_NS, EPOCH_NS + 200 * SECOND)
    assert ended.opened_ns == EPOCH_NS


def test_at_the_end_everything_is_closed_and_nothing_is_told_twice() -> None:
    news = FindingNews()
    over, lasting = finding(pid=1), finding(pid=2)
    news.look((over, lasting))
    news.look((lasting,))
    found_late = finding(pid=3)
    told = [(each.what, each.finding.victim.pid) for each in news.conclude((over, lasting, found_late))]
    assert told == [(What.BEGAN, 3), (What.ENDED, 2), (What.ENDED, 3)]
