"""Which processes belong together: who started whom."""

from __future__ import annotations

from collections.abc import Mapping

from ingero.model.facts import ProcessFact

MAX_GENERATIONS = 32  # a loop in what /proc said must not hang us


class Family:
    """Parents and children among the processes seen."""

    def __init__(self, processes: Mapping[int, ProcessFact]) -> None:
        self._parents = {pid: process.parent_pid for pid, process in processes.items()}

    def ancestors(self, pid: int) -> list[int]:
        found: list[int] = []
        parent = self._parents.get(pid)
        while parent and parent > 1 and len(found) < MAX_GENERATIONS:
            found.append(parent)
            parent = self._parents.get(parent)
        return found

    def works_for(self, pid: int, boss: int) -> bool:
        """Started by `boss`, directly or not, or it itself."""
        return pid == boss or boss in self.ancestors(pid)

    def related(self, one: int, other: int) -> bool:
        return self.works_for(one, other) or self.works_for(other, one)
