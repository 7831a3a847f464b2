"""What each launch launched: the names of kernels behind the driver's handles.

A handle's name is heard when the program asks for the handle (`cuLibraryGetKernel` and
relatives), read where the driver keeps it, or learnt from a launch whose host function
the runtime's probe has seen: that one's symbol is the kernel's name. Handles are used
again after an unload, so a name holds from the moment it was given. What is known is held
per process and bounded; launches are named by arrays, never one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ingero.model import layout
from ingero.model.layout import CallFlag
from ingero.model.operations import KernelName, LearntKernel, Operation
from ingero.model.window import Records
from ingero.units import clean

MAX_HANDLES = 131072
MAX_GIVEN = 8  # names of one handle remembered
# The symbols of functions that begin at these addresses of a process, or their places.
Resolve = Callable[[int, Sequence[int]], Sequence[KernelName | None]]
# The names the driver itself keeps of handles of a process, as far as they can be read.
KeptNames = Callable[[int, Sequence[int]], Mapping[int, bytes]]
Handle = tuple[int, int]  # process, value
Given = list[tuple[int, int]]  # since when, number of the name; in order


class KernelBook:
    """Names of kernels, as numbers: 0 is no name."""

    def __init__(
        self,
        operations: Iterable[Operation],
        functions_at: Resolve,
        places_at: Resolve,
        demangle: Demangle,
        kept_by_driver: KeptNames = lambda _pid, _handles: {},
    ) -> None:
        """functions_at: symbols, or places where there is none; places_at: places only."""
        self._functions_at, self._places_at = functions_at, places_at
        self._kept_by_driver = kept_by_driver
        operations = list(operations)
        size = 1 + max((each.number for each in operations), default=0)
        self._argument = np.full(size, -1, np.int64)
        self._at_runtime = np.zeros(size, bool)
        for each in operations:
            self._argument[each.number] = -1 if each.kernel_arg is None else each.kernel_arg
            self._at_runtime[each.number] = each.layer == "runtime"
        self._table = KernelTable(demangle)
        self._given: dict[Handle, Given] = {}
        self._host_functions: dict[Handle, int] = {}
        self._places: dict[Handle, int] = {}  # where handles without a name are launched
        self._learnt: list[LearntKernel] = []
        self.taught: Counter[int] = Counter()  # handles learnt from launches, by process
        self.wanting: set[int] = set()  # processes whose runtime launched what has no name, lately

    def names(self, numbers: NDArray[np.int64]) -> dict[int, KernelName]:
        return self._table.names(numbers)

    def take_learnt(self) -> list[LearntKernel]:
        """Handles learnt since the last call."""
        learnt, self._learnt = self._learnt, []
        return learnt

    def forget(self, pids: set[int], before_ns: int | None = None) -> None:
        """Processes that ended, or became another program at that time."""
        if not pids:
            return
        for handle in [each for each in self._given if each[0] in pids]:
            later = [each for each in self._given[handle] if before_ns is not None and each[0] >= before_ns]
            if later:
                self._given[handle] = later
            else:
                del self._given[handle]
        for known in (self._host_functions, self._places):
            for handle in [each for each in known if each[0] in pids]:
                del known[handle]
        for pid in pids:
            self.taught.pop(pid, None)

    # --- what is told ------------------------------------------------------------

    def hear(self, names: Records) -> None:
        """Handles that programs asked for."""
        names = names[np.argsort(names["h"]["start_ns"], kind="stable")]
        op = np.minimum(names["op"], len(self._at_runtime) - 1)
        at_runtime = self._at_runtime[op] & (names["from"] > 0)
        self._look_up(_handles(names["h"]["pid"][at_runtime], names["from"][at_runtime]))
        numbers = self._numbers(names)
        for row, number, of_function in zip(names, numbers, at_runtime.tolist(), strict=True):
            pid, origin, since_ns = int(row["h"]["pid"]), int(row["from"]), int(row["h"]["start_ns"])
            if of_function:
                number = self._host_functions.get((pid, origin), 0)
            elif origin:
                number = _name_at(self._given.get((pid, origin), []), since_ns)
            if origin != int(row["handle"]):
                self._give((pid, int(row["handle"])), since_ns, number)

    def _numbers(self, names: Records) -> list[int]:
        """Of the texts; those of each process together."""
        pids, numbers = names["h"]["pid"], np.zeros(len(names), np.int64)
        for pid in np.unique(pids).tolist():
            numbers[pids == pid] = self._table.of_texts(pid, [_text(row) for row in names[pids == pid]])
        return numbers.tolist()

    def _give(self, handle: Handle, since_ns: int, number: int) -> None:
        given = self._given.get(handle)
        if given is None:
            if len(self._given) >= MAX_HANDLES:
                del self._given[next(iter(self._given))]
            given = self._given[handle] = []
        if not given or given[-1][1] != number:
            given.append((since_ns, number))
            del given[:-MAX_GIVEN]

    def _look_up(self, functions: Iterable[Handle]) -> None:
        """Names of host functions that were not asked for yet."""
        _fill(self._host_functions, {each: each[1] for each in functions}, self._functions_at, self._number)

    def _number(self, pid: int, name: KernelName | None) -> int:
        if name is None:
            return 0
        if not name.known:
            return self._table.of_place(name.text)
        return self._table.of_texts(pid, [name.text.encode()])[0]

    # --- launches ------------------------------------------------------------------

    def name_calls(self, calls: Records) -> NDArray[np.int64]:
        """The number of each call's kernel; 0 where it launches none, or one without a name."""
        numbers = np.zeros(len(calls), np.int64)
        op = np.minimum(calls["op"], len(self._argument) - 1)
        argument = self._argument[op]
        at = np.flatnonzero(argument >= 0)
        self.wanting = set()
        if len(at):
            launches = calls[at]
            kernel = launches["args"][np.arange(len(at)), argument[at]]
            at_runtime = self._at_runtime[op[at]]
            numbers[at[at_runtime]] = self._by_function(launches[at_runtime], kernel[at_runtime])
            launches, kernel, at = launches[~at_runtime], kernel[~at_runtime], at[~at_runtime]
            self._learn(launches, kernel)
            numbers[at] = self._by_handle(launches, kernel)
        return numbers

    def _by_function(self, launches: Records, function: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Launches seen at the runtime itself."""
        first, group = _distinct(launches["h"]["pid"], function)
        handles = _handles(launches["h"]["pid"][first], function[first])
        self._look_up(handles)
        return np.array([self._host_functions.get(each, 0) for each in handles], np.int64)[group]

    def _learn(self, launches: Records, kernel: NDArray[np.uint64]) -> None:
        """A handle whose host function was seen has that one's name, from before we came."""
        paired = np.flatnonzero(launches["host_function"])
        first = paired[_distinct(launches["h"]["pid"][paired], kernel[paired])[0]]
        handles = _handles(launches["h"]["pid"][first], kernel[first])
        functions = _handles(launches["h"]["pid"][first], launches["host_function"][first])
        new = [pair for pair in zip(handles, functions, strict=True) if pair[0] not in self._given]
        # Since CUDA 13 a handle may be given in a host function's place.
        self._look_up(function for _, function in new if function not in self._given)
        for handle, function in new:
            given = self._given.get(function)
            number = given[-1][1] if given else self._host_functions.get(function, 0)
            if number:
                self._give(handle, 0, number)
                self.taught[handle[0]] += 1
                self._learnt.append(LearntKernel(*handle, self._table[number]))

    def _ask_driver(self, handles: list[Handle]) -> None:
        """Handles that were given out before we came: the driver knows what they are called."""
        nameless: dict[int, list[int]] = {}
        for pid, value in handles:
            if (pid, value) not in self._given:
                nameless.setdefault(pid, []).append(value)
        for pid, values in nameless.items():
            kept = self._kept_by_driver(pid, values)
            for (value, _), number in zip(
                kept.items(), self._table.of_texts(pid, list(kept.values())), strict=True
            ):
                self._give((pid, value), 0, number)
                self._learnt.append(LearntKernel(pid, value, self._table[number]))

    def _by_handle(self, launches: Records, kernel: NDArray[np.uint64]) -> NDArray[np.int64]:
        first, group = _distinct(launches["h"]["pid"], kernel)
        earliest = np.full(len(first), np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(earliest, group, launches["h"]["start_ns"])
        handles = _handles(launches["h"]["pid"][first], kernel[first])
        self._ask_driver(handles)
        found = self._unnamed(launches[first], handles)
        changing = []  # handles that got a name amid these launches
        for index, handle in enumerate(handles):
            given = self._given.get(handle)
            if given and given[-1][0] <= earliest[index]:
                found[index] = given[-1][1]
            elif given:
                changing.append((index, given))
        numbers: NDArray[np.int64] = found[group]
        for index, given in changing:
            mine = np.flatnonzero(group == index)
            since = np.array([since_ns for since_ns, _ in given], np.uint64)
            which = np.searchsorted(since, launches["h"]["start_ns"][mine], side="right")
            numbers[mine] = np.array([0, *(number for _, number in given)])[which]
        return numbers

    def _unnamed(self, launches: Records, handles: list[Handle]) -> NDArray[np.int64]:
        """One launch of each handle: where those without a name are launched from."""
        flags = launches["flags"].astype(np.int64)
        direct = flags & int(CallFlag.CALL_DIRECT) > 0
        # Where the runtime calls the driver says nothing, but what it was given can be learnt.
        runtime = flags & int(CallFlag.CALL_FROM_RUNTIME) > 0
        nameless = np.array([handle not in self._given for handle in handles], bool)
        self.wanting = set(launches["h"]["pid"][nameless & ~direct].tolist())
        asked = np.flatnonzero(nameless & ~runtime).tolist()
        callers = launches["caller_ip"]
        _fill(self._places, {handles[at]: int(callers[at]) for at in asked}, self._places_at, self._number)
        found = np.zeros(len(handles), np.int64)
        found[asked] = [self._places.get(handles[at], 0) for at in asked]
        return found


def _handles(pids: NDArray[np.uint32], values: NDArray[np.uint64]) -> list[Handle]:
    return list(zip(pids.tolist(), values.tolist(), strict=True))


def _name_at(given: Given, at_ns: int) -> int:
    index = bisect_right(given, at_ns, key=lambda each: each[0]) - 1
    return given[index][1] if index >= 0 else 0


def _text(row: np.void) -> bytes:
    if row["from"]:
        return b""
    text = bytes(row["text"])[: int(row["length"])].split(b"\0", 1)[0]
    return text + "…".encode() if int(row["length"]) >= layout.NAME["text"].itemsize else text


def _fill(
    known: dict[Handle, int],
    asked: dict[Handle, int],
    resolve: Resolve,
    number: Callable[[int, KernelName | None], int],
) -> None:
    """Ask for the addresses of keys not known yet, once for each process."""
    by_process: dict[int, dict[Handle, int]] = {}
    for key, address in asked.items():
        if key not in known:
            by_process.setdefault(key[0], {})[key] = address
    for pid, wanted in by_process.items():
        if len(known) + len(wanted) > MAX_HANDLES:
            known.clear()
        for key, name in zip(wanted, resolve(pid, list(wanted.values())), strict=True):
            known[key] = number(pid, name)


def _distinct(*columns: NDArray[np.generic]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each different row comes first, and which of them every row is."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        key = key * len(values) + inverse
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return first, group


# Names of kernels as numbers: each name once, however many handles have it.
#
# Texts come from traced processes: made fit to show, cut, and only so many. Demangling is
# done for many at once, because a reader is asked that starts a child (native/demangle.py).


MAX_NAMES = 16384  # different ones; each up to 2 KiB
MAX_CHARACTERS = 2048
STUB = b"__device_stub_"  # before the name of a kernel's host function, in some builds
Demangle = Callable[[int, Sequence[bytes]], Sequence[str]]  # of a process: what it costs is that one's fault


class KernelTable:
    """Numbers of names; 0 is no name."""

    def __init__(self, demangle: Demangle) -> None:
        self._demangle = demangle
        self._names: list[KernelName] = [KernelName("", known=False)]
        self._numbers: dict[KernelName, int] = {}
        self._of_text: dict[bytes, int] = {b"": 0}

    def __getitem__(self, number: int) -> KernelName:
        return self._names[number]

    def names(self, numbers: NDArray[np.int64]) -> dict[int, KernelName]:
        return {number: self._names[number] for number in np.unique(numbers).tolist() if number}

    def of_texts(self, pid: int, texts: Sequence[bytes]) -> list[int]:
        """Numbers of names as the process, or the symbol table of its program, spells them."""
        if len(self._of_text) > 2 * MAX_NAMES:  # spellings of the same names
            self._of_text = {b"": 0}
        new = [text for text in dict.fromkeys(texts) if text not in self._of_text]
        spelt = [clean(each.removeprefix(STUB), MAX_CHARACTERS).encode() for each in new]
        for text, name in zip(new, self._demangle(pid, spelt), strict=True):
            number = self._number(KernelName(clean(name, MAX_CHARACTERS)))
            if number:
                self._of_text[text] = number
        return [self._of_text.get(text, 0) for text in texts]

    def of_place(self, place: str) -> int:
        """The number of something without a name, by where it is."""
        return self._number(KernelName(clean(place, MAX_CHARACTERS), known=False))

    def _number(self, name: KernelName) -> int:
        known = self._numbers.get(name)
        if known is None and name.text and len(self._names) <= MAX_NAMES:
            known = self._numbers[name] = len(self._names)
            self._names.append(name)
        return known or 0
