"""Fixes for now: a command about processes that are gone becomes the one that finds them.

Only of what this boot of this machine recorded is it known; of others the command stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ingero.model.finding import Finding, Fix
from ingero.store.processes import boot_id
from ingero.store.reader import Reader

STARTED = 19  # field of /proc/PID/stat, counted behind the name


def for_now(reader: Reader, findings: list[Finding]) -> list[Finding]:
    """Each with the commands that can be run now."""
    named = {pid for finding in findings for fix in finding.fix for pid in fix.pids}
    gone = _gone(reader, named) if named else set()
    if not gone:
        return findings
    return [msgspec.structs.replace(each, fix=[_of(fix, gone) for fix in each.fix]) for each in findings]


def _of(fix: Fix, gone: set[int]) -> Fix:
    ended = [pid for pid in fix.pids if pid in gone]
    if not ended:
        return fix
    who = f"Process {ended[0]} has" if len(ended) == 1 else f"{len(ended)} of these processes have"
    then = "; this looks for them again." if fix.if_ended else "."
    return msgspec.structs.replace(fix, text=f"{fix.text} {who} ended{then}", command=fix.if_ended, pids=[])


def _gone(reader: Reader, pids: Iterable[int]) -> set[int]:
    here, gone = boot_id(), set()
    recorded_here = here and reader.rows("SELECT 1 FROM process WHERE boot_id = ? LIMIT 1", (here,))
    for pid in pids:
        rows = reader.rows(
            "SELECT boot_id, start_tick FROM process WHERE pid = ? ORDER BY id DESC LIMIT 1", (pid,)
        )
        if not rows and recorded_here and _started(pid) is None:  # of a bystander only sums are kept
            gone.add(pid)
        if rows and here and rows[0][0] == here and rows[0][1] is not None and _started(pid) != rows[0][1]:
            gone.add(pid)
    return gone


def _started(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[STARTED])
    except (OSError, ValueError, IndexError):
        return None
