"""Calls that are not in the trace, or only counted: made before the probes of a library were on, or of
programs that a probe at the return might kill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace

from ingero.attach.kernel import KernelSide
from ingero.attach.session import File, Session
from ingero.discover.libraries import Library, kind_of
from ingero.discover.processes import is_filtered
from ingero.model.layout import Spare
from ingero.model.window import CALL_TIMES, FIRST_CALLS, Records, Unwatchable, Window
from ingero.units import clean, format_ns

# Calls nobody could see: a library was mapped, and its probes were not on yet.
#
# The kernel tells of every executable mapping with its time. Where the probes of the file
# were on by then (discover/preattach.py) nothing is missing; otherwise the time between is
# told, and counts of that process are not called exact. How many calls it made meanwhile
# cannot be known. A process that ended before anybody looked is told of all the same.

MAX_PROCESSES = 1024  # that are no targets: every process of the machine maps files, 5 KB of them
MAX_MAPPINGS = 4096  # of one process
Row = tuple[int, int, int, int, int, int, int, str]
KindAt = Callable[[str, File], str | None]


@dataclass(frozen=True, slots=True)
class Mapped:
    """A file became executable in a process."""

    at_ns: int
    file: File
    path: str
    inherited: bool = False  # from before it was born: gone once it executes something else


class LateProbes:
    """When files were mapped, against when their probes were on."""

    def __init__(self, session: Session, live: Container[int], kind_at: KindAt) -> None:
        self._session = session
        self._live = live
        self._kind_at = kind_at
        self._mapped: dict[int, dict[int, Mapped]] = {}
        self._ended: dict[int, tuple[int, int]] = {}  # process: when, and since when its calls were taken
        self._news: list[Unwatchable] = []
        self._incomplete: dict[int, set[str]] = {}  # process: kinds of libraries with calls missing
        self._marked: set[tuple[int, int]] = set()

    def hear(self, rows: Iterable[Row]) -> None:
        """Mappings as the kernel tells them; those of a process may come after the news of its end."""
        behind: set[int] = set()
        for pid, address, _, major, minor, inode, at_ns, path in rows:
            if not path.startswith("/"):
                continue
            known = self._mapped.setdefault(pid, {})
            if len(known) < MAX_MAPPINGS:
                known[address] = Mapped(at_ns, (os.makedev(major, minor), inode), path)
            if at_ns <= self._ended.get(pid, (0, 0))[0]:
                behind.add(pid)
        for pid in behind:
            self.ended(pid, *self._ended[pid])
        if len(self._mapped) > MAX_PROCESSES:
            strangers = [pid for pid in self._mapped if pid not in self._live]
            for pid in strangers[: len(self._mapped) - MAX_PROCESSES // 2]:
                del self._mapped[pid]

    def forked(self, parent: int, child: int, at_ns: int) -> None:
        """What the parent had mapped, the child has from its birth."""
        inherited = {
            address: replace(each, at_ns=max(at_ns, each.at_ns), inherited=True)
            for address, each in self._mapped.get(parent, {}).items()
            if kind_of(each.path)
        }
        if inherited:
            self._mapped[child] = inherited | self._mapped.get(child, {})

    def executed(self, pid: int) -> None:
        """It is another program now."""
        known = self._mapped.get(pid, {})
        self._mapped[pid] = {address: each for address, each in known.items() if not each.inherited}

    def attached(self, pid: int, library: Library, adopted_ns: int) -> None:
        """A process's library has its probes on; since `adopted_ns` its calls are taken."""
        known = self._mapped.get(pid, {})
        times = [known.pop(start).at_ns for start, _ in library.ranges if start in known]
        if times:
            on_ns = max(self._session.files[library.file].on_ns, adopted_ns)
            self._compare(pid, library.path, library.kind, min(times), on_ns)

    def ended(self, pid: int, end_ns: int, adopted_ns: int = 0) -> None:
        """Nothing more will be learnt of the files it had mapped."""
        self._ended[pid] = end_ns, adopted_ns
        if len(self._ended) > MAX_PROCESSES:
            del self._ended[next(iter(self._ended))]
        first: dict[File, Mapped] = {}
        for each in self._mapped.pop(pid, {}).values():
            known = first.get(each.file)
            if known is None or each.at_ns < known.at_ns:
                first[each.file] = each
        files = self._session.files
        kinds = {
            each: files[each.file].kind if each.file in files else self._kind_at(each.path, each.file)
            for each in first.values()
        }
        uses_cuda = any(kind not in (None, "unknown") for kind in kinds.values())
        for each, kind in kinds.items():
            on = files.get(each.file)
            if kind == "unknown" and uses_cuda:
                why = f"{clean(each.path, 80)} was gone before it could be looked at"
                self.tell(pid, "runtime", f"{format_ns(end_ns - each.at_ns)} not watched: {why}")
            elif kind not in (None, "unknown"):
                on_ns = max(on.on_ns, adopted_ns) if on else end_ns
                self._compare(pid, each.path, kind, each.at_ns, min(on_ns, end_ns), never=on is None)

    def stranger(self, pid: int) -> None:
        """A process that came and went before anybody could look."""
        self.ended(pid, time.monotonic_ns())

    def _compare(
        self, pid: int, path: str, kind: str, mapped_ns: int, on_ns: int, never: bool = False
    ) -> None:
        if on_ns <= mapped_ns:
            return
        name = clean(path.rpartition("/")[2], 80)
        how = "mapped until its end, never probed" if never else "mapped before its probes were on"
        self.tell(pid, kind, f"{format_ns(on_ns - mapped_ns)} not watched: {name} was {how}")

    def tell(self, pid: int, kind: str, why: str) -> None:
        self._incomplete.setdefault(pid, set()).add("runtime" if kind == "static" else kind)
        self._news.append(Unwatchable(pid, FIRST_CALLS, why))

    def fill(self, window: Window, names: Mapping[int, str], warnings: dict[str, str]) -> None:
        """What was found since the last window, told in this one."""
        self.mark(window.operations, names)
        for each in self.take_news():
            window.not_watched.append(each)
            warnings[each.what] = f"process {each.pid}: {each.why}"

    def take_news(self) -> list[Unwatchable]:
        news, self._news = self._news, []
        return news

    def mark(self, operations: Records, names: Mapping[int, str]) -> None:
        """Counts that lack their beginning are not exact: the first of each operation says so."""
        if not self._incomplete:
            return
        for row in operations:
            pid, op = int(row["pid"]), int(row["op"])
            if (pid, op) not in self._marked and _library_of(names[op]) in self._incomplete.get(pid, ()):
                row["estimated"] = True
                self._marked.add((pid, op))

    def forget(self, pids: set[int]) -> None:
        """Ended, and the last of them is stored."""
        for pid in pids & self._incomplete.keys():
            del self._incomplete[pid]
        self._marked = {each for each in self._marked if each[0] not in pids}


def _library_of(name: str) -> str:
    if name.startswith("nccl"):
        return "nccl"
    return "runtime" if name.startswith(("cuda", "__cuda")) else "driver"


# Targets whose calls are counted and not timed, because a seccomp filter may kill them for a return probe.
#
# The kernel side decides it call by call (attach/probe_cost.py says why); here it is told, once for each.


WHY = "counted and not timed: this kernel lets a seccomp filter kill for a probe at the return"


class Filtered:
    """Which processes were told of."""

    def __init__(self, kernel: KernelSide, spare: Spare) -> None:
        kernel.settings = replace(kernel.settings, spare=spare)
        self._spare = spare
        self._told: set[int] = set()

    def fill(self, window: Window, live: Collection[int], warnings: dict[str, str]) -> None:
        """Look at those that were not told of; a filter may be installed at any time."""
        if self._spare is Spare.SPARE_NOBODY:
            return
        self._told.intersection_update(live)  # a number may become another's
        for pid in live:
            if pid not in self._told and (self._spare is Spare.SPARE_EVERYBODY or is_filtered(pid)):
                self._told.add(pid)
                window.not_watched.append(Unwatchable(pid, CALL_TIMES, WHY))
        if self._told:
            warnings[CALL_TIMES] = f"calls of {len(self._told)} processes are {WHY}; `ingero check` says more"
