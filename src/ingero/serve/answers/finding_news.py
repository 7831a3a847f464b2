"""What is new about the findings: which began, changed or ended since the last look.

The live diagnosis looks back a few minutes only, so the begin of a finding that lasts would
wander; here it stays where it was first seen. One finding is one key while it lasts; when it
comes back after its end, it is another one, unless the last diagnosis, over everything, only
tells again what was told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from msgspec.structs import replace

from ingero.model.finding import Finding

REMEMBERED = 1024  # findings that ended


class What(StrEnum):
    BEGAN = "began"
    CHANGED = "changed"  # in severity
    ENDED = "ended"


@dataclass(frozen=True)
class News:
    """One of them; `opened_ns` tells findings with one key apart and never changes."""

    what: What
    finding: Finding
    opened_ns: int


class FindingNews:
    """Compares what is with what was."""

    def __init__(self) -> None:
        self._open: dict[str, News] = {}
        self._ended: dict[str, int] = {}  # key: until when
        self._seen: tuple[Finding, ...] = ()

    def look(self, findings: tuple[Finding, ...]) -> list[News]:
        if findings is self._seen:
            return []
        self._seen = findings
        news = [each for finding in findings if (each := self._met(finding))]
        now = {finding.key for finding in findings}
        gone = [key for key in self._open if key not in now]
        return [*news, *(self._close(key) for key in gone)]

    def conclude(self, findings: tuple[Finding, ...]) -> list[News]:
        """The last look: nothing stays open."""
        fresh = tuple(each for each in findings if each.key in self._open or not self._told(each))
        return [*self.look(fresh), *self._end(list(self._open))]

    def _met(self, finding: Finding) -> News | None:
        known = self._open.get(finding.key)
        if known is None:
            news = News(What.BEGAN, finding, finding.first_ns)
            self._open[finding.key] = news
            return news
        whole = replace(finding, first_ns=min(known.finding.first_ns, finding.first_ns))
        changed = News(What.CHANGED, whole, known.opened_ns)
        self._open[finding.key] = changed
        return changed if finding.severity != known.finding.severity else None

    def _told(self, finding: Finding) -> bool:
        return finding.last_ns <= self._ended.get(finding.key, -1)

    def _end(self, keys: Iterable[str]) -> list[News]:
        return [self._close(key) for key in keys]

    def _close(self, key: str) -> News:
        known = self._open.pop(key)
        self._ended[key] = known.finding.last_ns
        if len(self._ended) > REMEMBERED:
            self._ended.pop(next(iter(self._ended)))
        return News(What.ENDED, known.finding, known.opened_ns)
