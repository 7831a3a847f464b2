"""Who is traced and which library files carry probes because of it.

Processes come from a look at /proc at the start, from the kernel (fork, exec, a
first traced call) and from new executable mappings; they go when the kernel says
so. A library file is attached when the first target maps it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from ingero.agent.candidates import Children, Scope, StartedPrograms, Waiting, told_by
from ingero.agent.communicators import Communicators
from ingero.agent.library_files import LibraryRoom, warn
from ingero.agent.missed_calls import LateProbes, Row
from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.attach.kernel import KernelSide
from ingero.attach.session import File, Session
from ingero.discover import processes
from ingero.discover.gpu_devices import Devices, find_gpus, visible_devices
from ingero.discover.libraries import Library, kind_of
from ingero.discover.preattach import preattach_candidates
from ingero.errors import AttachError
from ingero.model import layout
from ingero.model.layout import CallerRange, ProcessEvent, ProcFlag
from ingero.model.window import Container, Process, Records
from ingero.units import format_ns

RUNTIME_RANGES = int(CallerRange.RUNTIME_RANGES)
MIXED_RANGES = int(CallerRange.CALLER_RANGES) - RUNTIME_RANGES
MAX_CONTAINERS = 1024  # remembered; more are told again
# Calls at the runtime without one at the driver, after which it is not taken to lead there.
UNREACHED_CALLS = 10
UNUSED_NS = 60_000_000_000


@dataclass(slots=True)
class Target:
    """A traced process."""

    process: Process
    files: dict[File, Library] = field(default_factory=dict)
    devices: Devices | None = None  # cards behind its device numbers
    adopted_ns: int = 0  # when the kernel side was told; 0: it knew by itself
    since_ns: int = field(default_factory=time.monotonic_ns)
    runtime_calls: int = 0
    driver_calls: int = 0

    @property
    def has_driver(self) -> bool:
        return any(library.kind == "driver" for library in self.files.values())


class Targets:
    """The traced processes, and what changed since the last window."""

    def __init__(
        self,
        kernel: KernelSide,
        session: Session,
        scope: Scope,
        communicators: Communicators,
        readers: Asking,
    ) -> None:
        self._kernel = kernel
        self._readers = readers
        self._communicators = communicators
        self._session = session
        self._scope = scope
        self.room = LibraryRoom(self._readers)
        self._mounts = processes.cgroup_mounts()
        self._host_drivers: list[Library] | None = None
        self._with_driver: set[str] = set()  # folders where a driver lies that is probed ahead
        self._gpus = find_gpus().gpus
        self.live: dict[int, Target] = {}
        self.late = LateProbes(session, self.live, self._kind_at)
        self.gone: dict[int, Target] = {}  # ended since the last window
        self.warnings: dict[str, str] = {}
        self._new_processes: dict[tuple[int, int], Process] = {}
        self._new_containers: dict[int, Container] = {}
        self._known_containers: deque[int] = deque(maxlen=MAX_CONTAINERS)
        self._execs: list[np.void] = []
        self.started = StartedPrograms()
        self._unused_since: dict[File, int] = {}
        self._mapped, self._children = Waiting(), Children()

    # --- finding -------------------------------------------------------------

    def find_all(self, told: Callable[[int], None]) -> Records:
        """Look at every process there is; the threads that now are accounted for. `told`: how many so far."""
        if self._scope.fixed:
            named = self._scope.named()
            told(len(named))
            for pid in named:
                self.announce(pid)
        else:
            for pid in processes.list_pids():
                before = len(self.live)
                self.examine(pid)
                if len(self.live) != before:
                    told(len(self.live))
            self._adopt_children()
        return self._kernel.read_threads()

    def look_again(self) -> None:
        """At the libraries of everybody, after news of mappings were lost."""
        for pid in list(self.live) if self._scope.fixed else processes.list_pids():
            self.examine(pid)

    def put_on_again(self) -> None:
        """Probes that somebody took off by killing the process that keeps them."""
        lost = self._session.drop_lost()
        for path in lost:
            self.warnings[f"off {path}"] = f"probes on {path} were off for a while: their keeper was killed"
        if lost:
            self.look_again()

    def announce(self, pid: int) -> bool:
        """Trace this process whatever it maps; False when it is gone."""
        adopted = self._adopt(pid) is not None
        if adopted:
            self.examine(pid)
        return adopted

    def examine(self, pid: int) -> None:
        """Look at a process's libraries; a user of CUDA that is in scope becomes a target."""
        target = self.live.get(pid)
        if target is None and self._scope.fixed:
            return
        try:
            libraries = self._readers.ask(Reading.libraries_of, pid)
        except UnreadError:
            return
        if not libraries and target is None:
            return
        if target is None:
            found = self.read(pid)
            if found is None or not self._scope.admits(*found):
                return
            target = self._adopt(pid)
            self._children.born_to(pid)
        if target is not None and not self._attach(target, libraries):
            # Seen while it was being loaded: some loaders map a file as a whole, then parts of it anew.
            with suppress(UnreadError):
                again = self._readers.ask(Reading.libraries_of, pid)
                if again != libraries:
                    self._attach(target, again)

    def _adopt_children(self) -> None:
        for child in self._children.find():
            if child not in self.live:
                self._adopt(child)

    def read(self, pid: int) -> tuple[Process, Container] | None:
        """Without its command line and environment where those cannot be read."""
        try:
            return self._readers.ask(Reading.process, pid)
        except UnreadError:
            return processes.read_process_and_container(pid, self._mounts, with_memory=False)

    def _environment(self, pid: int) -> dict[str, str]:
        try:
            return self._readers.ask(Reading.environment, pid)
        except UnreadError:
            return {}

    def _carries(self, pid: int) -> bool:
        try:
            return self._readers.ask(Reading.executable_carries, pid)
        except UnreadError:
            return False

    def _kind_at(self, path: str, file: File) -> str | None:
        try:
            return self._readers.ask(Reading.kind_at, os.fsencode(path), file)
        except UnreadError:
            return "unknown"

    def _adopt(
        self, pid: int, files: dict[File, Library] | None = None, parent: Process | None = None
    ) -> Target | None:
        """`parent`: it was forked from this one, and is the same program until it executes another."""
        found = self.read(pid)
        if found is None:
            return None
        process, container = found
        target = self._same(process)
        process = self._whole(process, target.process if target else parent)
        if target is None:
            contained = not processes.shares_files(pid)
            devices = visible_devices(self._environment(pid), self._gpus, contained)
            # Under a filter calls are taken from now on; otherwise the kernel side takes everybody's, or
            # follows the tree of those announced.
            by_filter = not (self._scope.fixed or self._scope.everything)
            adopted_ns = time.monotonic_ns() if by_filter and files is None else 0
            target = Target(process, dict(files or {}), devices, adopted_ns)
            self.live[pid] = target
        else:
            known = target.process
            target.process = replace(process, start_ns=known.start_ns, listens=known.listens)
        self._write_proc(target)
        if not processes.still_runs(target.process):  # died meanwhile: its number is free for others
            self._kernel.forget_proc(pid)
        self.note(target.process, container)
        return target

    def _same(self, process: Process) -> Target | None:
        """What is known of this very process, not of an earlier one with its number."""
        target = self.live.get(process.pid)
        if target and processes.same_start(target.process.start_ns, process.start_ns):
            return target
        return None

    def _whole(self, process: Process, known: Process | None) -> Process:
        """Of one that has ended /proc has the name alone: the rest is what it said, or what was known."""
        said = self.started.of(process)
        if process.cmdline or not (said or known):
            return process
        if said:
            return processes.started_with(process, said.arguments, said.environment)
        assert known is not None
        return replace(
            process,
            cmdline=known.cmdline,
            rank=known.rank,
            local_rank=known.local_rank,
            world_size=known.world_size,
            labels=process.labels or known.labels,
        )

    def note(self, process: Process, container: Container | None = None) -> None:
        # A number may end and begin again within one window.
        self._new_processes[process.pid, process.start_ns // processes.TICK_NS] = process
        if container and container.cgroup_id not in self._known_containers:
            self._known_containers.append(container.cgroup_id)
            self._new_containers[container.cgroup_id] = container

    # --- attaching ------------------------------------------------------------

    def _attach(self, target: Target, libraries: list[Library]) -> bool:
        """Whether all of them are on."""
        before = dict(target.files)
        target.files = {library.file: library for library in libraries}
        if target.files != before:
            self._write_proc(target)  # first, so that its callers are known from the first call
        reaches_driver = target.has_driver or self._driver_ahead(target)
        done = []
        for library in libraries:
            done.append(self._attach_file(library, hot=not reaches_driver))
            if done[-1]:
                self.late.attached(target.process.pid, library, target.adopted_ns)
        if target.has_driver:
            self._drop_redundant(target)
        return all(done)

    def _attach_file(self, library: Library, hot: bool) -> bool:
        hot = hot and library.kind in ("runtime", "static")
        if why := self.room.full(library.file, library.path_for_kernel, self._session.files):
            self.room.refuse(library.file)
            warn(self.warnings, "room", f"{library.path} is not traced: {why}")
            return True  # trying again at once would not help
        try:
            self._session.attach(library.file, library.path_for_kernel, library.path, library.kind, hot)
        except AttachError as error:
            self.room.refuse(library.file)
            if isinstance(error.__cause__, (TimeoutError, PermissionError)):
                self.room.give_up(library.file, str(error.__cause__.strerror))
            warn(self.warnings, library.path, error.message)
            return False
        self.warnings.pop(library.path, None)
        return True

    def attach_ahead(self, libraries: list[Library]) -> None:
        """Files a command about to start is likely to load."""
        drivers = [library for library in libraries if library.kind == "driver"]
        # Any file of that name may be among them: the loader takes one it knows, or the runtime's neighbour.
        known = {library.file for library in preattach_candidates([], os.environ)}
        self._host_drivers = [library for library in drivers if library.file in known] or None
        self._with_driver = {_folder(library) for library in drivers}
        for library in libraries:
            reaches = bool(self._host_drivers) or _folder(library) in self._with_driver
            self._attach_file(library, hot=not reaches)

    def _driver_ahead(self, target: Target) -> bool:
        """The runtime loads the driver at its first call: attach it before that, where there is one.

        Only for processes that see our own file system; a container's driver is attached
        when it is mapped.
        """
        runtimes = [library for library in target.files.values() if library.kind == "runtime"]
        if not runtimes:
            return False
        if any(_folder(library) in self._with_driver for library in runtimes):
            return True
        if not processes.shares_files(target.process.pid):
            return False
        if self._host_drivers is None:
            ahead = preattach_candidates([], {})
            self._host_drivers = [library for library in ahead if library.kind == "driver"]
        for library in self._host_drivers:
            self._attach_file(library, hot=False)
        return bool(self._host_drivers)

    def _drop_redundant(self, target: Target) -> None:
        """Hot runtime probes go where every user of the file reaches a probed driver."""
        for file, library in target.files.items():
            attached = self._session.files.get(file)
            if library.kind == "driver" or attached is None or not attached.hot:
                continue
            users = [other for other in self.live.values() if file in other.files]
            if all(user.has_driver for user in users):
                self._session.hot_off(file)

    def _write_proc(self, target: Target) -> None:
        """Tell the kernel side: a target, where its runtimes lie, and what in its communicators."""
        proc = np.zeros(1, layout.PROC)
        runtimes = [r for each in target.files.values() if each.kind == "runtime" for r in each.ranges]
        # An object with a runtime linked into it: its calls may be the runtime's or its own.
        mixed = [r for each in target.files.values() if each.kind == "static" for r in each.ranges]
        proc["flags"] = int(ProcFlag.PROC_TARGET)
        if target.has_driver and len(runtimes) <= RUNTIME_RANGES and len(mixed) <= MIXED_RANGES:
            proc["flags"] |= int(ProcFlag.PROC_RANGES)
        proc["cgroup_id"] = target.process.cgroup_id
        proc["start_ns"] = target.process.start_ns
        for index, (start, end) in enumerate(runtimes[:RUNTIME_RANGES]):
            proc["range"][0][index] = (start, end)
        for index, (start, end) in enumerate(mixed[:MIXED_RANGES]):
            proc["range"][0][RUNTIME_RANGES + index] = (start, end)
        proc["comm"] = self._communicators.describe(target.process.pid, target.files.values())
        self._kernel.write_proc(target.process.pid, proc)

    def check_reach(self, operations: Records, layers: dict[int, str]) -> None:
        """Runtime calls that never reach a probed driver are probed at the runtime after all."""
        for row in operations:
            target = self.live.get(int(row["pid"]))
            if target is None:
                continue
            layer = layers.get(int(row["op"]))
            if layer == "driver":
                target.driver_calls += int(row["count"])
            elif layer == "runtime":
                target.runtime_calls += int(row["count"])
        for target in self.live.values():
            if target.runtime_calls >= UNREACHED_CALLS and not target.driver_calls:
                for library in target.files.values():
                    self._probe_at_runtime(library)

    def _probe_at_runtime(self, library: Library) -> None:
        before = self._session.files.get(library.file)
        had_all = before is None or before.hot or not before.hot_points
        if not self._attach_file(library, hot=True) or had_all:
            return
        for user in self.live.values():
            if library.file in user.files and not user.driver_calls:
                missed = format_ns(time.monotonic_ns() - user.since_ns)
                name = library.path.rpartition("/")[2]
                why = f"{missed} of launches and copies not watched: {name} does not reach the probed driver"
                self.late.tell(user.process.pid, library.kind, why)

    # --- the kernel's news -------------------------------------------------------

    def on_mappings(self, mappings: Iterable[Row]) -> list[int]:
        """Files were mapped for execution; a process is looked at once, however often. Which targets did.

        Those it is too much for at once are looked at when this is called again.
        """
        looked = []
        for pid in self._mapped.some(row[0] for row in mappings if kind_of(row[-1]) is not None):
            looked.append(pid)
            if pid in self.live or not self._scope.fixed:
                self.examine(pid)
            if self._scope.everything and pid not in self.live and processes.has_ended(pid):
                self.late.stranger(pid)
        self._adopt_children()
        return [pid for pid in looked if pid in self.live]

    def on_events(self, events: Records) -> None:
        """Fork, exec, exit, first calls."""
        for record in events:
            pid, event = int(record["h"]["pid"]), int(record["event"])
            if event == ProcessEvent.PROCESS_EXIT:
                self._end(pid, record)
            elif event == ProcessEvent.PROCESS_FORK:
                self._born(pid, record)
            elif record["target"]:  # exec of a target, or a first call nobody announced
                if event == ProcessEvent.PROCESS_EXEC:
                    self._execs.append(record)
                    self.late.executed(pid)
                if not self.announce(pid):
                    self._gone_already(pid, record)
            elif not self._scope.fixed and self._carries(pid):
                self.examine(pid)  # what it maps besides is heard of by itself

    def _born(self, pid: int, record: np.void) -> None:
        """A child may be gone before /proc is read: what the kernel said must do then."""
        parent = self.live.get(int(record["parent_pid"]))
        # Same mappings as the parent's until it executes something else.
        files = dict(parent.files) if parent else {}
        self.late.forked(int(record["parent_pid"]), pid, int(record["h"]["start_ns"]))
        like = parent.process if parent else None
        if self._adopt(pid, files, like) is None:
            process = replace(
                told_by(record), parent_pid=int(record["parent_pid"]), uid=like.uid if like else None
            )
            self.live[pid] = Target(self._whole(process, like), files)
            self.note(self.live[pid].process)

    def _gone_already(self, pid: int, record: np.void) -> None:
        """It made a call or became another program, and ended before it was looked at."""
        process = told_by(record)
        said, before = self.started.of(process), self._same(process)
        if said:
            process = replace(process, parent_pid=said.parent_pid, uid=said.uid)
        elif before:
            process = replace(process, parent_pid=before.process.parent_pid, uid=before.process.uid)
        executed = int(record["event"]) == ProcessEvent.PROCESS_EXEC
        process = self._whole(process, before.process if before and not executed else None)
        self.live[pid] = Target(process, {} if executed or not before else before.files)
        self.note(process)

    def _end(self, pid: int, record: np.void) -> None:
        target = self.live.get(pid)
        if target is None or not processes.same_start(
            target.process.start_ns, int(record["process_start_ns"])
        ):
            return  # not one of ours, or an earlier one of this number
        self.gone[pid] = self.live.pop(pid)
        self._kernel.forget_proc(pid)
        self.late.ended(pid, int(record["h"]["start_ns"]), target.adopted_ns)
        self.started.forget(pid)
        ended = replace(
            target.process, end_ns=int(record["h"]["start_ns"]), exit_code=int(record["exit_code"])
        )
        self.note(ended)

    def finish(self, now_ns: int) -> None:
        """Tracing ends before they do: what is not probed now never was."""
        for pid, target in self.live.items():
            self.late.ended(pid, now_ns, target.adopted_ns)

    def parent_of(self, pid: int) -> int | None:
        target = self.live.get(pid)
        return target.process.parent_pid if target else None

    def sweep(self) -> None:
        """News of processes were lost: drop those that are gone."""
        for pid, target in list(self.live.items()):
            if not processes.still_runs(target.process):
                self.gone[pid] = self.live.pop(pid)
                self._kernel.forget_proc(pid)

    def release_unused(self, now_ns: int) -> None:
        """Take the probes off files no target has mapped for a while; containers come and go."""
        used = {file for target in self.live.values() for file in target.files}
        used.update(library.file for library in self._host_drivers or ())
        for file in list(self._session.files):
            if file in used:
                self._unused_since.pop(file, None)
            elif now_ns - self._unused_since.setdefault(file, now_ns) > UNUSED_NS:
                del self._unused_since[file]
                self._session.release(file)

    def take_news(self) -> tuple[list[Process], list[Container]]:
        """Processes and containers that are new or changed since the last window."""
        news = list(self._new_processes.values()), list(self._new_containers.values())
        self._new_processes, self._new_containers = {}, {}
        return news

    def take_execs(self) -> Records:
        """Targets that became another program since the last window."""
        execs, self._execs = self._execs, []
        return np.array(execs, layout.PROCESS) if execs else np.zeros(0, layout.PROCESS)

    def paths(self) -> dict[File, str]:
        """Where the files of live targets are found."""
        return {
            file: library.path_for_kernel
            for target in self.live.values()
            for file, library in target.files.items()
        }

    def cards(self) -> dict[int, Devices | None]:
        """Cards behind device numbers, by process."""
        return {pid: target.devices for pid, target in {**self.gone, **self.live}.items()}

    def take_gone(self) -> set[int]:
        gone, self.gone = set(self.gone) - set(self.live), {}  # a reused number still counts
        return gone


def _folder(library: Library) -> str:
    return library.path.rpartition("/")[0]
