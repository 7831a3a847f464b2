"""Which traced processes serve others; looked at soon after they appear, then now and then."""

from __future__ import annotations

from dataclasses import replace

from ingero.agent.targets import Targets
from ingero.discover.sockets import ListenerRound

EVERY_WINDOWS = 10
MAX_LOOKS = 64  # per window


class Servers:
    """Counts the windows each target has been here for."""

    def __init__(self) -> None:
        self._windows: dict[int, int] = {}

    def look(self, targets: Targets) -> None:
        """Once per window, before the news of processes are taken."""
        self._windows = {pid: self._windows.get(pid, 0) + 1 for pid in targets.live}
        due = [pid for pid, windows in self._windows.items() if is_due(windows)]
        here = ListenerRound()
        for pid in due[:MAX_LOOKS]:
            target = targets.live[pid]
            listens = here.listens(pid)
            if listens is not None and listens != target.process.listens:
                target.process = replace(target.process, listens=listens)
                targets.note(target.process)


def is_due(windows: int) -> bool:
    """After 1, 2, 4 and 8 windows, because servers take a moment to begin; then every ten."""
    if windows < EVERY_WINDOWS:
        return windows & (windows - 1) == 0
    return windows % EVERY_WINDOWS == 0
