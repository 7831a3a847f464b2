"""Library files that are to carry probes: how many may, and where the probes of one sit."""

from __future__ import annotations

from collections.abc import Container

from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.attach.session import File, Plan, Planner
from ingero.errors import FileFormatError

# How many library files carry probes: each has keepers of its own, and anybody can make files.
#
# A user's files are bounded, so that one user cannot use up the room of all. What has no room, and
# what cannot be read, is counted as a loss and said.

PER_OWNER, OF_ROOT, IN_ALL = 64, 384, 512
REMEMBERED = 10_000  # files that were refused: each is counted once
LOSS = "library_refused"
MOST_WARNINGS = 40


class LibraryRoom:
    """Who has how many files probed."""

    def __init__(self, readers: Asking) -> None:
        self._readers = readers
        self._owners: dict[File, int] = {}
        self._refused: set[File] = set()
        self._given_up: dict[File, str] = {}
        self._new = 0

    def full(self, file: File, path: str, attached: Container[File]) -> str:
        """Why another file gets no probes; empty when there is room. `attached`: those that have some."""
        if file in attached:
            return ""
        if file in self._given_up:
            return self._given_up[file]
        self._owners = {known: owner for known, owner in self._owners.items() if known in attached}
        try:
            owner = self._readers.ask(Reading.owner, path)
        except UnreadError as error:
            return str(error)
        if owner is None:  # gone already: whoever attaches says so
            return ""
        held = sum(each == owner for each in self._owners.values())
        most = PER_OWNER if owner else OF_ROOT
        if held >= most:
            return f"{most} library files of user {owner} have probes already"
        if len(self._owners) >= IN_ALL:
            return f"{IN_ALL} library files have probes already"
        self._owners[file] = owner
        return ""

    def refuse(self, file: File) -> None:
        if file not in self._refused:
            self._new += 1
            if len(self._refused) >= REMEMBERED:
                self._refused.clear()
            self._refused.add(file)

    def give_up(self, file: File, why: str) -> None:
        """Trying again would hold us up again."""
        if len(self._given_up) >= REMEMBERED:
            self._given_up.clear()
        self._given_up[file] = why

    def losses(self) -> dict[str, int]:
        """Files refused since the last time."""
        new, self._new = self._new, 0
        return {LOSS: new} if new else {}


def warn(warnings: dict[str, str], key: str, text: str) -> None:
    """One more warning, unless there are many: anybody can cause them."""
    if key in warnings or len(warnings) < MOST_WARNINGS:
        warnings[key] = text
    else:
        warnings["more"] = "there are more warnings than these"


# Where the probes of a file sit, asked of the reader process (attach/session.py chooses).


def planner(readers: Asking) -> Planner:
    def plan(path_for_kernel: str, kind: str, without: frozenset[str], costly: bool) -> Plan:
        try:
            return readers.ask(Reading.plan, path_for_kernel, kind, sorted(without), costly)
        except UnreadError as error:
            raise FileFormatError(str(error)) from error

    return plan
