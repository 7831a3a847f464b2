"""Kernel names of a trace: heard, learnt where they were given before it, and put on its launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ingero.agent.frames import AskedSymbols
from ingero.agent.targets import Targets
from ingero.attach import shapes
from ingero.attach.kernel import KernelSide
from ingero.attach.probes import NO_ARG, ROWS
from ingero.attach.session import ExtraProbes, File, Session
from ingero.attach.shapes import Point, Shape
from ingero.capture.kernel_names import KernelBook
from ingero.model.operations import KernelName, Operation
from ingero.model.stack import NativeFrame
from ingero.model.window import Records, Window


class Kernels:
    """What the launches of the traced processes are called."""

    def __init__(
        self,
        kernel: KernelSide,
        shape: Shape,
        session: Session,
        targets: Targets,
        operations: Iterable[Operation],
        symbols: AskedSymbols,
    ) -> None:
        self._symbols = symbols
        self._book = KernelBook(
            operations, self._functions_at, self._places_at, symbols.readable, symbols.handle_names
        )
        self._rounds = NameRounds(kernel, session, targets, lambda: shapes.entry_only(shape, kernel, "names"))

    def name(self, window: Window, names: Records) -> None:
        """Give the window's launches their names."""
        self._book.hear(names)
        numbers = self._book.name_calls(window.calls)
        window.calls["kernel"] = numbers
        window.kernels = self._book.names(numbers)
        window.kernels_learnt = self._book.take_learnt()

    def look(self, window: Window, gone: set[int]) -> None:
        """Look for names that are missing, or stop; forget processes that are gone."""
        self._rounds.step(window.end_ns, self._book.wanting, self._book.taught, window.watched_share)
        for exec_ in window.execs:
            pid = int(exec_["h"]["pid"])
            self._book.forget({pid}, before_ns=int(exec_["h"]["start_ns"]))
            self._symbols.forget({pid})
        self._book.forget(gone)
        self._symbols.forget(gone)
        self._rounds.forget(gone)

    def close(self) -> None:
        self._rounds.close()

    def _functions_at(self, pid: int, addresses: Sequence[int]) -> list[KernelName | None]:
        frames = self._symbols.frames_at(pid, np.array(addresses, np.uint64))
        return [frame and (_symbol(frame) or _place(frame)) for frame in frames]

    def _places_at(self, pid: int, addresses: Sequence[int]) -> list[KernelName | None]:
        frames = self._symbols.frames_at(pid, np.array(addresses, np.uint64))
        return [frame and _place(frame) for frame in frames]


def _place(frame: NativeFrame) -> KernelName:
    return KernelName(f"{frame.module.rpartition('/')[2]}+{frame.offset:#x}", known=False)


def _symbol(frame: NativeFrame) -> KernelName | None:
    """None where the file has no symbol there, or there is no file."""
    if frame.module.startswith("[") or frame.function == _place(frame).text:
        return None
    return KernelName(frame.function)


# When names of kernels are looked for: two seconds of probes on the runtime's launches.
#
# Only where a runtime launches what has no name, which is so when a trace begins amid a
# job. A process gets its next round later and later, and one that learnt nothing in its
# last round much later. Where launches are watched for a part of the time, these probes are
# on with them and a round lasts until it had its two seconds, or long enough.


SECOND_NS = 1_000_000_000
ROUND_NS = 2 * SECOND_NS  # watched
LONGEST_NS = 20 * SECOND_NS
WAITS_NS = (10 * SECOND_NS, 30 * SECOND_NS, 60 * SECOND_NS)
FUTILE_WAIT_NS = 600 * SECOND_NS
LAUNCHES = frozenset(number for number, row in enumerate(ROWS, start=1) if row.kernel != NO_ARG)


@dataclass(slots=True)
class UnnamedLauncher:
    """A process that has had rounds."""

    rounds: int = 0
    taught: int = 0  # handles learnt before this round
    next_ns: int = 0


@dataclass(slots=True)
class NameRound:
    """One that is going on."""

    from_ns: int
    pids: set[int]
    guests: list[ExtraProbes] = field(default_factory=list)
    seen_ns: float = 0.0
    until_ns: int = 0  # seen so far


class NameRounds:
    """Puts the probes on and takes them off again."""

    def __init__(
        self, kernel: KernelSide, session: Session, targets: Targets, make_shape: Callable[[], Shape]
    ) -> None:
        self._kernel, self._session, self._targets = kernel, session, targets
        self._make_shape = make_shape
        self._shape: Shape | None = None
        self._refused = False
        self._pupils: dict[int, UnnamedLauncher] = {}
        self._round: NameRound | None = None
        self.number = 0

    @property
    def on(self) -> bool:
        return self._round is not None

    def step(
        self, now_ns: int, wanting: Iterable[int], taught: Mapping[int, int], watched_share: float = 1.0
    ) -> None:
        """Begin a round or end one.

        taught: handles learnt so far, by process; watched_share: of the time since the last step.
        """
        if self._round:
            if self._is_over(self._round, now_ns, watched_share):
                self._end(now_ns, taught)
            return
        pids = {pid for pid in wanting if self._is_due(pid, now_ns)}
        if pids and not self._refused:
            self._begin(pids, now_ns, taught)

    def forget(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._pupils.pop(pid, None)

    def close(self) -> None:
        if self._round:
            self._take_off(self._round)
            self._round = None

    @staticmethod
    def _is_over(now: NameRound, now_ns: int, watched_share: float) -> bool:
        now.seen_ns += (now_ns - (now.until_ns or now.from_ns)) * watched_share
        now.until_ns = now_ns
        refused = any(guest.refused for guest in now.guests)
        return refused or now.seen_ns >= ROUND_NS or now_ns - now.from_ns >= LONGEST_NS

    def _is_due(self, pid: int, now_ns: int) -> bool:
        pupil = self._pupils.get(pid)
        return pupil is None or now_ns >= pupil.next_ns

    def _begin(self, pids: set[int], now_ns: int, taught: Mapping[int, int]) -> None:
        files = self._files(pids)
        for pid in pids:
            pupil = self._pupils.setdefault(pid, UnnamedLauncher())
            pupil.taught = taught.get(pid, 0)
            pupil.next_ns = now_ns + FUTILE_WAIT_NS
        if not files:
            return
        self.number += 1
        self._kernel.look_for_names(self.number)
        self._round = NameRound(now_ns, pids)
        try:
            for file, path in files.items():
                guest = ExtraProbes(self._open(), file, path, self._launches(file), LAUNCHES)
                self._session.add_extra(guest)
                self._round.guests.append(guest)
        except OSError as error:
            self._refused = True
            why = (error.strerror or str(error)).splitlines()[0]
            self._targets.warnings["names"] = f"kernel names given before the trace are not known: {why}"
            self.close()

    def _open(self) -> Shape:
        if self._shape is None:
            self._shape = self._make_shape()
        return self._shape

    def _files(self, pids: set[int]) -> dict[File, str]:
        """The runtimes of these processes."""
        libraries = {
            library.file: library.path_for_kernel
            for pid in pids
            if (target := self._targets.live.get(pid))
            for library in target.files.values()
        }
        return {file: path for file, path in libraries.items() if self._launches(file)}

    def _launches(self, file: File) -> list[Point]:
        attached = self._session.files.get(file)
        return [point for point, row in attached.hot_points if row.kernel != NO_ARG] if attached else []

    def _end(self, now_ns: int, taught: Mapping[int, int]) -> None:
        assert self._round is not None
        for pid in self._round.pids:
            pupil = self._pupils.get(pid)
            if pupil and taught.get(pid, 0) > pupil.taught:
                pupil.next_ns = now_ns + WAITS_NS[min(pupil.rounds, len(WAITS_NS) - 1)]
                pupil.rounds += 1
        self._take_off(self._round)
        self._round = None

    def _take_off(self, ended: NameRound) -> None:
        for each in ended.guests:
            self._session.remove_extra(each)
        self._kernel.look_for_names(0)
