"""Commands for a shell about processes: those that are alive by number, others by how to find them.

A number may long belong to somebody else when the command is run. So a process that ended while it was
recorded is never named by its number, and `pids` says whom a command is about: whoever shows it on the same
machine looks whether they are still there, and shows `if_ended` otherwise (serve/answers/diagnosis.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ingero.correlate.loss import LossPart
from ingero.model.facts import Facts
from ingero.model.finding import Fix

SIMPLE = re.compile(r"[\w./=:,@%+ -]{1,300}")  # command lines that a shell takes as they are
SEE_WHO = "ps -eo pid,comm,pcpu --sort=-pcpu | head"
PLAIN = re.compile(r"[A-Za-z0-9_-]+")  # names that pgrep takes as they are
FEW, MOST = 3, 16  # processes named one by one: where a name would do as well, and at most


def ended(facts: Facts, pid: int) -> bool:
    known = facts.processes.get(pid)
    return known is not None and known.end_ns is not None


def look(facts: Facts, pid: int, text: str, command: str) -> Fix:
    """A command that only reads; `{}` in it is the process."""
    comm = facts.comm(pid)
    later = command.format(f"$(pgrep -n -x {comm})") if PLAIN.fullmatch(comm) else None
    if ended(facts, pid):
        return Fix(f"{text} {comm} ({pid}) has ended; when it runs again:", later)
    return Fix(text, command.format(pid), pids=[pid], if_ended=later)


def of_all(facts: Facts, others: Sequence[LossPart], job_comm: str, text: str, command: str) -> Fix:
    """For each of them; `{}` in the command is one process."""
    name = others[0].comm
    alive = [part.pid for part in others if not ended(facts, part.pid)]
    alike = [part for part in others if part.comm == name]
    by_name = SEE_WHO
    if _theirs_alone(facts, alike, name, job_comm):
        by_name = f"pgrep -x {name} | xargs -r -n 1 {command.format('').strip()}"
        if len(alike) == len(others) and (len(alive) < len(others) or len(others) > FEW):
            return Fix(text, by_name)
    named = alive[:MOST]
    if not named:
        return Fix(f"{text} They have ended; see what runs now:", SEE_WHO)
    one = command.format(named[0])
    all_of_them = f"for p in {' '.join(map(str, named))}; do {command.format('$p')}; done"
    return Fix(text, one if len(named) == 1 else all_of_them, pids=named, if_ended=by_name)


def _theirs_alone(facts: Facts, others: Sequence[LossPart], name: str, job_comm: str) -> bool:
    """Whether nobody else is called so: neither the job nor somebody who took nothing from it."""
    theirs = {part.pid for part in others}
    strangers = any(each.comm == name and each.pid not in theirs for each in facts.processes.values())
    return bool(PLAIN.fullmatch(name)) and name != job_comm and not strangers


def start_again(facts: Facts, pid: int, before: str) -> str | None:
    """The job's own command line behind `before`; None where it is not known."""
    known = facts.processes.get(pid)
    line = known.cmdline if known else None
    return f"{before} {line}" if line and SIMPLE.fullmatch(line) else None


def sanitised(facts: Facts, pid: int) -> Fix:
    """NVIDIA's checker of memory accesses, for the job as it was started."""
    again = start_again(facts, pid, "compute-sanitizer")
    return Fix("Find the faulty access: run the job under compute-sanitizer.", again)


FAIL_INSTEAD = Fix(
    "Make hangs fail instead of waiting forever: set this before the next start.",
    "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
)
