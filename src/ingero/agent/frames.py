"""Stacks and samples: drained often, handed over once a window as lines people can read.

The kernel gives numbers; what they stand for comes through a ring of its own, emptied
after the ring of calls, so that a call's stack is always there when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from ingero.agent.interpreters import Interpreters
from ingero.agent.readers import Asking, UnreadError
from ingero.agent.reading import Reading
from ingero.attach.kernel import KernelSide
from ingero.capture.code_objects import Origin, line_at
from ingero.capture.counters import MapReader, SampleBook
from ingero.capture.ring import RingReader
from ingero.capture.stacks import StackBook
from ingero.model import layout
from ingero.model.layout import RecordType
from ingero.model.stack import NativeFrame
from ingero.model.window import SAMPLE, Records, Window

# What a window shows under its losses, and what the book counts it as.
COUNTED = {"stack_lost": "stacks_lost", "stack_unknown_frame": "unknown_frames"}


class Frames:
    """Everything about where calls, waits and samples came from."""

    def __init__(
        self,
        kernel: KernelSide,
        ring: RingReader,
        symbols: AskedSymbols,
        pythons: Interpreters,
    ) -> None:
        self._ring = ring
        self._pythons = pythons
        self._book = StackBook(symbols.frames_at, line_at)
        self._samples = SampleBook(kernel.maps["samples"]) if "samples" in kernel.maps else None
        costs = np.dtype([("at", "<u4")])
        self._costs = MapReader(kernel.maps["walk_costs"], costs, layout.WALK_COST, kernel.cpus)
        self._cost = np.zeros(2, np.int64)  # walks and their ns so far
        self._told: dict[str, int] = {}
        self._unmatched = np.zeros(0, layout.WAIT_STACK)

    def take_in(self) -> None:
        """Take in what was drained; names are looked up while the process is there."""
        stacks = self._ring.take(RecordType.REC_STACK)
        codes = self._ring.take(RecordType.REC_CODE)
        long_codes = self._ring.take(RecordType.REC_CODE_LONG)
        if len(stacks) or len(codes) or len(long_codes):
            self._book.add(stacks, codes, long_codes)
            self._read_long_ones()

    def _read_long_ones(self) -> None:
        """Code objects the kernel had no room or no time for, while they are likely still there."""
        for key, start_ns in self._book.code.take_missing():
            found, version = self._pythons.long_code(*key), self._pythons.version_of(key.pid)
            if found and version:
                self._book.code.learn(key, Origin(start_ns, version), *found)
                self._book.retry()

    def fill(self, window: Window) -> None:
        """Name the stacks of a window's calls, waits and samples."""
        samples = self._samples.read() if self._samples else None
        self._ring.drain()  # after whatever cites a stack was read
        self.take_in()
        self._match_waits(window.waits)
        window.call_stacks = self._book.resolve(window.calls["stack_id"])
        window.wait_stacks = self._book.resolve(window.waits["stack_id"])
        if samples is not None:
            window.samples = self._named(samples)
        window.stacks = self._book.take_new()
        window.walks, window.walk_ns = self._walked()
        for reason, count in self._book.counts.items():
            self._tell(window, reason, count)

    def forget(self, pids: Set[int]) -> None:
        """Processes that have ended; their last window is filled."""
        self._book.forget(pids)

    def _named(self, found: Records) -> Records:
        samples = np.zeros(len(found), SAMPLE)
        for name in ("pid", "tid", "bucket", "op", "flags"):
            samples[name] = found["key"][name]
        samples["stack_hash"] = self._book.resolve(found["key"]["stack_id"])
        samples["count"] = found["count"]
        return samples

    def _match_waits(self, waits: Records) -> None:
        """A long wait's stack comes a moment after the wait, so perhaps a window later."""
        walked = np.concatenate([self._unmatched, self._ring.take(RecordType.REC_WAIT_STACK)])
        keys = zip(walked["h"]["tid"].tolist(), walked["h"]["start_ns"].tolist(), strict=True)
        stack_of = dict(zip(keys, walked["stack_id"].tolist(), strict=True))
        mine = zip(waits["h"]["tid"].tolist(), waits["h"]["start_ns"].tolist(), strict=True)
        known = waits["stack_id"].tolist()  # walked at the beginning, where the kernel cannot at the end
        waits["stack_id"] = [stack_of.get(key, stack) for key, stack in zip(mine, known, strict=True)]
        self._unmatched = walked[:0]

    def _walked(self) -> tuple[int, int]:
        _, values = self._costs.read()
        now = np.array([values["count"].sum(), values["ns"].sum()], np.int64)
        walks, ns = (now - self._cost).tolist()
        self._cost = now
        return walks, ns

    def _tell(self, window: Window, reason: str, count: int) -> None:
        """Stacks that could not be shown count as losses; they cost no time and no call."""
        shown = next((name for name, counted in COUNTED.items() if counted == reason), None)
        if shown and count > self._told.get(reason, 0):
            window.losses[shown] = count - self._told.get(reason, 0)
            self._told[reason] = count


# Names for addresses, asked of the reader process (discover/native_symbols.py has them).


AT_ONCE = 1024  # names


class AskedSymbols:
    """What it hears of processes is passed on with the next question."""

    def __init__(self, readers: Asking) -> None:
        self._readers = readers
        self._mapped: set[int] = set()
        self._gone: set[int] = set()

    def mapped(self, pids: Iterable[int]) -> None:
        """Processes that mapped something of any kind: unknown addresses may be in it."""
        self._mapped.update(pids)

    def forget(self, pids: Iterable[int]) -> None:
        self._gone.update(pids)

    def look(self, pids: Iterable[int]) -> None:
        """Processes that mapped something or became another program."""
        self._tell()
        for pid in pids:
            try:
                self._readers.ask(Reading.look_at_code, pid)
            except (UnreadError, ProcessLookupError):
                continue

    def frames_at(
        self, pid: int, addresses: NDArray[np.uint64], start_ns: int = 0
    ) -> Sequence[NativeFrame | None]:
        """A frame for each address, None where there is no executable memory or nobody could read it."""
        self._tell()
        try:
            at = addresses.astype("<u8").tobytes()
            frames = self._readers.ask(Reading.frames_at, pid, at, int(start_ns))
        except (UnreadError, ProcessLookupError):
            frames = []
        return frames if len(frames) == len(addresses) else [None] * len(addresses)

    def handle_names(self, pid: int, handles: Sequence[int]) -> dict[int, bytes]:
        """What a driver calls the kernels behind its handles."""
        try:
            names = self._readers.ask(Reading.handle_names, pid, list(handles))
        except (UnreadError, ProcessLookupError):
            return {}
        return {handle: names[handle] for handle in handles if handle in names}

    def readable(self, pid: int, names: Sequence[bytes]) -> list[str]:
        """Names of a process's kernels; C++ names as people write them, where a reader could."""
        texts = [name.decode("utf-8", "replace") for name in names]
        mangled = [at for at, name in enumerate(names) if name.startswith(b"_Z")]
        for start in range(0, len(mangled), AT_ONCE):
            rows = mangled[start : start + AT_ONCE]
            try:
                made = self._readers.ask(Reading.readable, pid, [names[at] for at in rows])
            except UnreadError:
                break
            for at, text in zip(rows, made, strict=False):
                texts[at] = text
        return texts

    def _tell(self) -> None:
        if self._mapped or self._gone:
            mapped, gone = sorted(self._mapped), sorted(self._gone)
            self._mapped, self._gone = set(), set()
            try:
                self._readers.ask(Reading.news, mapped, gone)
            except UnreadError:  # its successor knows nothing that could be out of date
                return
