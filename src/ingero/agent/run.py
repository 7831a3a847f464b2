"""The trace itself: start, a loop of ten milliseconds and one second, stop.

Every 10 ms the ring is emptied and the kernel's news are heard; every second the
counters are read into a Window, stored and shown. Nothing here touches one event.
"""

from __future__ import annotations

import os
import platform
import select
import shlex
import time
from dataclasses import replace

import numpy as np

from ingero.agent import shown
from ingero.agent.annotation_socket import AnnotationSocket, open_socket
from ingero.agent.annotations import Annotations
from ingero.agent.bystanders import Bystanders, Servers, name_owners
from ingero.agent.candidates import Scope
from ingero.agent.command import Command
from ingero.agent.communicators import Communicators
from ingero.agent.frames import AskedSymbols, Frames
from ingero.agent.gpus import Gpus, number_cards
from ingero.agent.in_flight_at_attach import BeforeAttach
from ingero.agent.interpreters import Collectors, Interpreters
from ingero.agent.launched_kernels import Kernels
from ingero.agent.library_files import planner
from ingero.agent.mappings import watch as watch_mappings
from ingero.agent.missed_calls import Filtered
from ingero.agent.own_cost import OwnCost
from ingero.agent.readers import Readers
from ingero.agent.recorder import Recorder
from ingero.agent.shown import Telling
from ingero.agent.starting import (
    INTERRUPTED,
    InstanceLock,
    Starting,
    StoppedError,
    raise_descriptor_limit,
    require_privileges,
)
from ingero.agent.targets import Targets
from ingero.agent.tenants import Tenants
from ingero.agent.windows import WindowReader
from ingero.attach import probe_cost, probes, shapes
from ingero.attach.kernel import DEFAULT_RING_BYTES, RECORD_ALL_RING_BYTES, KernelSide, Settings
from ingero.attach.session import Session
from ingero.capture.threads import mark_gil
from ingero.clock import Clock
from ingero.discover.libraries import LibraryFinder
from ingero.governor.governor import Governor
from ingero.model.layout import ProcessEvent, RecordType
from ingero.model.live import LiveView, Overhead, Surface
from ingero.model.options import TraceOptions
from ingero.model.window import Unwatchable, Window
from ingero.native import _shim
from ingero.serve.answers.live import LiveTotals
from ingero.serve.answers.metrics import Meter
from ingero.serve.answers.records import RecordStream
from ingero.store.location import default_path
from ingero.store.writer import Writer

POLL_MS = 10
WINDOW_NS = 1_000_000_000
SHORT_NS = 200_000_000
NAMES_NS = 200_000_000  # stacks are named five times a second: fewer and larger batches cost less


def run(options: TraceOptions, surface: Surface) -> int:
    """Trace until told to stop; the command's exit code where there is a command."""
    require_privileges()
    _shim.one_pool()  # it runs for months: what a busy minute took must not be kept
    lock = InstanceLock()
    try:
        surface.starting("loading the probes")
        agent = RunningTrace(options, surface)
        try:
            raise_descriptor_limit()
            return agent.run()
        except StoppedError:
            return INTERRUPTED if options.command else 0
        finally:
            agent.close()
    finally:
        surface.starting("")
        lock.release()


class RunningTrace:
    """One trace, from attach to detach."""

    def __init__(self, options: TraceOptions, surface: Surface) -> None:
        self._options = options
        self._surface = surface
        self._starting = Starting(surface)
        self._clock = Clock.now()
        self._node = options.node or platform.node() or "localhost"
        self._operations = probes.operations()
        self._readers = Readers()  # first: it is forked, and should have nothing of a trace
        self._layers = {operation.number: operation.layer for operation in self._operations}
        self._names = {operation.number: operation.name for operation in self._operations}
        self._scope = Scope(options)
        self._scope.named()  # a wrong --pid is told before anything is attached
        self._command = (
            Command(options.command, options.command_stdout_to_stderr, options.command_as_root)
            if options.command
            else None
        )
        self._session: Session | None = None
        self._kernels: Kernels | None = None
        self._kernel = KernelSide(
            Settings(
                trace_all=self._scope.everything,
                record_all=options.record_all,
                ring_bytes=options.ring_bytes
                or (RECORD_ALL_RING_BYTES if options.record_all else DEFAULT_RING_BYTES),
                without=options.without,
                stacks=options.stack,
                served=options.served,
            )
        )
        self._bystanders = Bystanders(self._readers)
        self._servers = Servers()
        self._annotations = Annotations(lambda pid: pid in self._targets.live)
        self._annotation_socket: AnnotationSocket | None = None
        self._gpus = Gpus("gpu" not in options.without)
        self._tenants = Tenants(options.kubelet)
        self._totals = LiveTotals(self._operations, self._node, recent=surface.takes_the_screen)
        self._telling = Telling(surface, RecordStream(self._operations, self._clock, self._node))
        limits, prices = surface.metric_limits, surface.metric_prices
        self._meter = Meter(self._operations, self._clock, self._node, limits, prices) if limits else None
        self._started_ns = time.monotonic_ns()
        self._next_names_ns = 0
        self._overhead = Overhead(budget_share=options.max_overhead_share)
        self._cost_so_far = np.zeros(4)  # hits, elapsed ns, our own CPU ns, share of the worst thread x ns
        self._governor: Governor | None = None
        self._in_window = False
        self._writer = self._open_writer()  # last: nothing after it can fail and leave a recording open

    def _open_writer(self) -> Recorder | None:
        if not self._options.record:
            return None
        command = shlex.join(self._options.command) or " ".join(map(str, self._options.pids))
        path = self._options.db or default_path()
        writer = Writer(
            path, self._node, self._clock, self._operations, self._options.max_db_bytes, command=command
        )
        return Recorder(writer)

    # --- start ---------------------------------------------------------------------

    def run(self) -> int:
        with self._starting.told():
            self.start()
        if self._meter:
            self._surface.metrics(self._meter.snapshot)
        self._surface.begin(self._observed())
        if self._command:
            self._command.release()
        code = self._loop()
        self._readers.last_beat()
        self.finish()
        if self._writer:
            self._writer.close()  # before the end is shown: only now it is known what was stored
        view = self._observed(last=True)
        whole_run = replace(
            view, events_per_s=view.events * 1e9 / view.elapsed_ns if view.elapsed_ns else 0.0
        )
        self._surface.end(whole_run, code or 0)
        if self._command and code is None:  # the time is over, the command is not
            self.close()
            return self._command.wait(self._surface.stop_requested)
        return code or 0

    def start(self) -> None:
        """Load, attach and find the targets."""
        self._starting.step("measuring what a probe costs here")
        self._hit_cost, verdict = probe_cost.measure()
        self._filtered = Filtered(self._kernel, verdict.spare(self._hit_cost.shape))
        self._gpus.start()
        self._tenants.start()
        shape = shapes.named(self._kernel, self._hit_cost.shape)
        self._kernel.configure()
        switch_ns = probe_cost.switch_ns()
        self._starting.step("attaching to the kernel")
        self._kernel.attach_host()
        added_ns = probe_cost.added_ns(switch_ns, probe_cost.switch_ns())
        self._own_cost = OwnCost(added_ns, os.cpu_count() or 1, readers=lambda: self._readers.pids)
        self._kernel.attach_clock()
        if self._writer:
            self._writer.note(self._absent(), self._hit_cost.ns, self._options.max_overhead_share)
        plans = planner(self._readers)
        self._session = Session(shape, self._options.without, costly=self._options.costly, planner=plans)
        self._collectors = Collectors(
            lambda: shapes.same_for(shape, self._kernel, "collect"),
            self._options.without,
            self._readers,
            plans,
        )
        self._communicators = Communicators(self._operations, self._readers)
        self._targets = Targets(self._kernel, self._session, self._scope, self._communicators, self._readers)
        if self._writer:
            self._annotation_socket = open_socket(self._annotations.hear, self._targets.warnings)
        self._interpreters = Interpreters(
            self._kernel, self._targets.parent_of, self._options.stack, self._readers
        )
        self._symbols = AskedSymbols(self._readers)
        self._kernels = Kernels(
            self._kernel, shape, self._session, self._targets, self._operations, self._symbols
        )
        self._watch = watch_mappings(sorted(os.sched_getaffinity(1)) or [0], self._targets.warnings)
        self._mappings_lost = 0
        self._news = select.poll()  # a library being mapped wakes us at once
        for fd in self._watch.fds():
            self._news.register(fd, select.POLLIN)
        before = BeforeAttach(self._session, self._targets, self._readers)
        self._reader = WindowReader(self._kernel, before, self._readers.cpu_ns)
        self._readers.idle = self.meanwhile
        self._kernel.meanwhile = self._reader.drain
        # Who asks for a record of every call gets one.
        budget = None if self._options.record_all else self._options.max_overhead_share
        self._governor = Governor(self._kernel, self._session, self._hit_cost, budget, self._targets.paths)
        self._frames = Frames(self._kernel, self._reader.frames, self._symbols, self._interpreters)
        if self._command:
            self._starting.step("attaching to the libraries of the command")
            self._targets.attach_ahead(self._command.libraries(LibraryFinder(), shape.name != "perf"))
            self._collectors.prepare()
            self._command.start()
            self._targets.announce(self._command.pid)
        self._starting.step("looking for CUDA processes")
        before.begin(self._targets.find_all(self._starting.attaching))

    def _absent(self) -> dict[str, str]:
        """Sources nothing is recorded of, and why."""
        absent = self._tenants.absent() | dict.fromkeys(self._options.without, "left out by --without")
        for source, state in self._kernel.sources.items():
            if not state.attached:
                absent[source] = "; ".join(state.refused) or "nothing to attach to"
        return absent

    # --- loop -----------------------------------------------------------------------

    def _loop(self) -> int | None:
        """Until it ends: 0, the command's exit code, or None when the command still runs."""
        self._started_ns = time.monotonic_ns()
        duration_ns = self._options.duration_ns
        deadline = None if duration_ns is None else self._started_ns + duration_ns
        next_window = time.monotonic_ns() + WINDOW_NS
        assert self._governor is not None
        while True:
            self._news.poll(min(POLL_MS, self._governor.look_ms))
            self.hear()
            self._readers.beat()
            self.govern()
            now = time.monotonic_ns()
            if now >= next_window:
                self._show(self.window())
                next_window += max(1, -(-(now - next_window) // WINDOW_NS)) * WINDOW_NS
            if self._ended(now, deadline):
                return self._command.exit_code() if self._command else 0

    def _ended(self, now: int, deadline: int | None) -> bool:
        if self._command and self._command.exit_code() is not None:
            return True
        if self._surface.stop_requested.is_set():
            if self._command is None:
                return True
            self._command.ask_to_end(now)  # and is traced to its end
        if self._scope.pids and not self._targets.live:
            self._targets.warnings["ended"] = "every process that was to be traced has ended"
            return True
        return deadline is not None and now >= deadline

    def hear(self) -> None:
        """Empty the ring and follow what processes did."""
        # Read before the ring, heard after it: whoever had the number before is gone by then.
        mappings = self._watch.read()
        self._targets.late.hear(mappings)
        self._reader.drain()
        self._symbols.mapped(row[0] for row in mappings)  # before addresses in them are met
        now_ns = time.monotonic_ns()
        self._follow(now_ns)
        mapped = self._targets.on_mappings(mappings)
        if mapped:  # a job that begins to use CUDA has its interpreter by now, and may not live long
            self._interpreters.look(mapped, now_ns)
            self._symbols.look(mapped)
        self._interpreters.look(self._targets.live, now_ns)
        self._watch_collectors()

    def _follow(self, now_ns: int) -> None:
        """What processes did, as far as the ring has been emptied."""
        events = self._reader.ring.take(RecordType.REC_PROCESS)
        self._targets.started.hear(self._reader.frames.take(RecordType.REC_STARTED))
        if len(events) or now_ns >= self._next_names_ns:  # a process that ends takes its names with it
            self._frames.take_in()
            self._next_names_ns = now_ns + NAMES_NS
        if len(events):
            self._targets.on_events(events)
            executed = events["event"] == ProcessEvent.PROCESS_EXEC
            self._interpreters.forget_program(events["h"]["pid"][executed].tolist())

    def govern(self) -> None:
        """Keep within the overhead budget."""
        assert self._governor is not None
        self._governor.tick(time.monotonic_ns())

    def meanwhile(self) -> None:
        """While a reader works: neither the rings nor the budget wait for its answers. What is watched
        does not change while a window is put together."""
        self._reader.drain()
        if not self._in_window:
            self.govern()

    def window(self) -> Window:
        """Read, store and count in what happened since the last window."""
        self._in_window = True
        try:
            return self._window()
        finally:
            self._in_window = False

    def _window(self) -> Window:
        self._clock.observe()
        if self._watch.lost() > self._mappings_lost:  # somebody maps more than the kernel tells us of
            self._mappings_lost = self._watch.lost()
            self._targets.look_again()
            self._symbols.mapped(self._targets.live)
        self._targets.put_on_again()
        assert self._session is not None
        self._session.mend(self._targets.paths())
        window = self._reader.read()
        self._follow(window.end_ns)  # whose calls are in it is stored with it
        self._targets.check_reach(window.operations, self._layers)
        self._enrich(window)
        if "ring_process" in window.losses:
            self._targets.sweep()
        if not self._scope.fixed:
            self._targets.release_unused(window.end_ns)
        gone = self._targets.take_gone()
        self._interpreters.forget(gone)
        self._communicators.forget(gone)
        if self._kernels:
            self._kernels.look(window, gone)
        window.unsampled = self._reader.operations.unsampled(gone)
        if self._writer:
            self._writer.write(window)
        if gone:
            self._frames.forget(gone)
            self._reader.operations.forget(gone)
            self._targets.late.forget(gone)
        self._add(window)
        self._overhead = self._measured_overhead(window)
        return window

    def _add(self, window: Window) -> None:
        self._totals.add(window)
        if self._meter:
            self._meter.add(window)

    def _enrich(self, window: Window) -> None:
        """What only the user side knows: cards, owners of sockets, processes and their names."""
        self._own_cost.claim(window)
        number_cards(window.calls, self._targets.cards())
        assert self._kernels is not None
        self._kernels.name(window, self._reader.frames.take(RecordType.REC_NAME))
        window.tcp = name_owners(window.tcp, self._targets)
        self._servers.look(self._targets)
        window.processes, window.containers = self._targets.take_news()
        window.execs = self._targets.take_execs()
        window.gpus = self._gpus.take()
        window.bystanders, strangers = self._bystanders.meet(window, self._targets.live)
        window.containers += strangers
        if self._annotation_socket:
            self._annotation_socket.look()
        self._annotations.fill(window, self._targets)
        self._watch_pythons(window)
        self._frames.fill(window)
        assert self._governor is not None
        self._governor.complete(window, self._reader.totals, self._reader.operations.read_ns)
        # After the governor: its marks on counts stand.
        self._targets.late.fill(window, self._names, self._targets.warnings)
        self._filtered.fill(window, self._targets.live, self._targets.warnings)
        self._own_cost.fill(window)
        refused, self._kernel.processes_refused = self._kernel.processes_refused, 0
        unread = self._readers.losses(self._targets.warnings)
        for reason, count in {"process_full": refused, **self._targets.room.losses(), **unread}.items():
            if count:
                window.losses[reason] = window.losses.get(reason, 0) + count

    def _watch_pythons(self, window: Window) -> None:
        """Tell waits for an interpreter's lock from others, and see its garbage collections."""
        mark_gil(window, self._interpreters.locks())
        self._interpreters.number_holders(window.waits)
        self._collectors.release_unused(self._interpreters.files(), window.end_ns)
        window.not_watched = self._interpreters.take_news() + self._communicators.unread(window.calls)
        for each in window.not_watched:
            self._targets.warnings[each.what + each.why] = f"process {each.pid}: {each.why}"
        window.not_watched += self._gpus.not_watched(window.gpus, self._targets.warnings)
        self._tenants.fill(window, self._targets.warnings)

    def _watch_collectors(self) -> None:
        for pid, library in self._interpreters.take_found():
            if why := self._collectors.attach(library):
                self._interpreters.tell(Unwatchable(pid, "gc", why))

    def finish(self) -> Window:
        """The last window, with what was still open."""
        if self._annotation_socket:
            self._annotation_socket.close()
        self.hear()
        window = self._reader.read(last=True)
        self._follow(window.end_ns)
        self._reader.finish(window)
        self._targets.finish(time.monotonic_ns())
        if window.end_ns - window.start_ns < SHORT_NS:
            window.system = None  # a fragment of a second says nothing of the machine
        self._enrich(window)
        window.unsampled = self._reader.operations.unsampled()
        if self._writer:
            self._writer.write(window)
        self._add(window)
        self._overhead = self._measured_overhead(window, whole=True)
        self._telling.tell(window)
        return window

    # --- showing ----------------------------------------------------------------------

    def _show(self, window: Window) -> None:
        self._telling.tell(window)
        self._surface.update(self._observed())

    def _observed(self, last: bool = False) -> LiveView:
        view = self._view()
        if self._meter:
            self._meter.observe(view, last)
        return view

    def _measured_overhead(self, window: Window, whole: bool = False) -> Overhead:
        """What the probes cost the traced thread they cost most: hits times the calibrated cost of one."""
        length_ns = window.end_ns - window.start_ns
        share = window.overhead_share or 0.0
        now = np.array([window.hits, length_ns, window.agent_cpu_ns, share * length_ns])
        self._cost_so_far += now
        hits, elapsed_ns, agent_ns, lost_ns = (float(each) for each in (self._cost_so_far if whole else now))
        taken_share, bystanders_share = self._own_cost.shares(whole)
        return replace(
            self._overhead,
            share=lost_ns / elapsed_ns if elapsed_ns else 0.0,
            hits_per_s=hits * 1e9 / elapsed_ns if elapsed_ns else 0.0,
            ns_per_hit=self._hit_cost.ns,
            agent_cpu_share=agent_ns / elapsed_ns if elapsed_ns else 0.0,
            taken_from_job_share=taken_share,
            bystanders_share=bystanders_share,
            actions=self._governor.now() if self._governor else (),
        )

    def _view(self) -> LiveView:
        assert self._session is not None
        now = time.monotonic_ns()
        told = self._writer.diagnosis if self._writer else None
        steps = told.steps if told else None
        view = self._totals.view(self._clock.wall_ns(now), now - self._started_ns, steps)
        view = told.shown_in(view) if told else view
        return replace(
            view,
            targets=tuple(shown.targets(self._targets)),
            libraries=tuple(shown.libraries(self._session, self._targets)),
            probes=tuple(shown.probes(self._session, self._collectors, self._kernel)),
            losses={
                **view.losses,
                **(self._writer.dropped if self._writer else {}),
                **self._telling.losses(),
            },
            overhead=self._overhead,
            database=shown.database(self._writer),
            warnings=shown.warnings(self._targets, told),
        )

    def close(self) -> None:
        """Take everything off; nothing stays in the kernel. Once is enough, more often is fine."""
        if self._annotation_socket:
            self._annotation_socket.close()
        self._readers.close()
        self._gpus.close()
        self._tenants.close()
        if self._command:
            self._command.close()
        if self._session:
            if self._kernels:
                self._kernels.close()
            self._session.close()
            self._collectors.close()
        if self._governor:
            self._governor.close()
        self._kernel.close()
        if self._writer:
            self._writer.close()
