"""Where the probes of a file sit, asked of the reader process (attach/session.py chooses)."""

from __future__ import annotations

from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.attach.session import Plan, Planner
from ingero.errors import FileFormatError


def planner(readers: Asking) -> Planner:
    def plan(path_for_kernel: str, kind: str, without: frozenset[str], costly: bool) -> Plan:
        try:
            return readers.ask(Reading.plan, path_for_kernel, kind, sorted(without), costly)
        except UnreadError as error:
            raise FileFormatError(str(error)) from error

    return plan
