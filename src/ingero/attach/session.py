"""Probes on and off: which functions of which library files are attached.

A file is attached once however many processes map it. Runtime functions that only
pass on to the driver (hot rows) have links of their own, so that they can be taken off where
the driver is probed and put on where it is not reached. So have functions that are watched
a part of the time (`set_apart`): they go off and on again for a moment, the others stay.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from ingero.attach.probes import BY_NAME, ROWS, Row, family_of
from ingero.attach.shapes import Links, Point, Shape
from ingero.errors import AttachError, FileFormatError
from ingero.model.numbers import Word
from ingero.native import elf
from ingero.native.instructions import probe_site

File = tuple[int, int]
OfTheTable = Annotated[int, Meta(ge=1, le=len(ROWS))]  # the number of an operation
Key = tuple[bool, str]  # a link of a file: whether of hot runtime functions, and of which family
APART = "apart"  # the family of functions that are watched a part of the time
# A function that moves to another link is in both for so long: calls in flight return to where they began.
# Not for longer than calls last: until the old link is gone a hit still costs its trap.
BOTH_NS, BOTH_WAITS_NS = 30_000_000, 150_000_000
VARIANTS = 1 << 16  # none comes round while a link of its kind is still on

# One of these is the collector: of several the first, in every form the compiler made of it.
COLLECTORS = {"python": ("gc_collect_main", "_PyGC_Collect"), "python3.9": ("collect",)}
FORMS = ("", ".lto_priv.0", ".isra.0", ".constprop.0", ".lto_priv.0.isra.0", ".lto_priv.0.constprop.0")
PREFIXES = {"runtime": ("cuda", "__cuda"), "nccl": ("nccl",), "static": ("cuda", "__cuda", "nccl")}


@dataclass(frozen=True, slots=True)
class Function:
    """Where a function of the table lies in its file."""

    offset: Word
    size: Word
    op: OfTheTable


@dataclass(slots=True, eq=False)
class ExtraProbes:
    """Another program on functions of a file, for a while: off while operations of ours are."""

    shape: Shape
    file: File
    path_for_kernel: str
    points: list[Point]
    beside: frozenset[int]  # while one of these operations is off, it is too
    links: Links | None = None
    refused: str = ""  # why it could not be put on again


@dataclass(slots=True)
class Attached:
    """One library file with probes on it."""

    path: str
    kind: str
    points: list[tuple[Point, Row]]
    hot_points: list[tuple[Point, Row]]
    functions: list[Function] = field(default_factory=list)  # probed or not
    links: dict[Key, Links] = field(default_factory=dict)
    hot: bool = False  # the hot points are wanted
    path_for_kernel: str = ""  # where it was found last
    costly: list[str] = field(default_factory=list)  # left out: the kernel would single-step them
    refused: list[str] = field(default_factory=list)
    on_ns: int = 0  # since when its probes are on; CLOCK_MONOTONIC

    def counts(self) -> Counter[str]:
        """Functions probed, by source."""
        on = self.points + (self.hot_points if self.hot else [])
        return Counter(row.layer for _, row in on)

    def wanted(self, apart: frozenset[int]) -> dict[Key, list[tuple[Point, Row]]]:
        """Its links, with what is in each."""
        found: dict[Key, list[tuple[Point, Row]]] = {}
        for hot, points in ((False, self.points), (True, self.hot_points if self.hot else [])):
            for point, row in points:
                family = APART if point.op in apart else family_of(row)
                found.setdefault((hot, family), []).append((point, row))
        return found

    def take(self, *families: str) -> list[Links]:
        """Links that are to go, no longer its own."""
        return [self.links.pop(key) for key in list(self.links) if key[1] in families]


@dataclass(slots=True)
class Plan:
    """What can be probed in a file: functions found, and for each probe its place and operation."""

    functions: list[Function] = field(default_factory=list)
    points: list[tuple[Word, OfTheTable]] = field(default_factory=list)
    costly: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


# Where it may be (path, kind, sources left out, whether costly sites are wanted); FileFormatError
Planner = Callable[[str, str, frozenset[str], bool], Plan]


class Session:
    """All attached library files."""

    def __init__(
        self,
        shape: Shape,
        without: frozenset[str] = frozenset(),
        costly: bool = False,
        planner: Planner | None = None,
    ) -> None:
        self._planner = planner or plan
        self._shape = shape
        self._without = without
        self._allow_costly = costly
        self.files: dict[File, Attached] = {}
        self._apart: frozenset[int] = frozenset()  # operations with links of their own
        self._off = False  # those are, for the moment
        self._variants: Counter[str] = Counter()  # by family: how often its links were made anew
        self._replaced: list[tuple[int, list[Links]]] = []  # until when
        self._leaving: list[Links] = []  # let go of, not yet off
        self._guests: list[ExtraProbes] = []
        self._incomplete = False

    def attach(self, file: File, path_for_kernel: str, path: str, kind: str, hot_runtime: bool) -> Attached:
        """Put probes on a file; done already is fine."""
        known = self.files.get(file)
        if known is None:
            known = self._plan(path_for_kernel, path, kind)
            try:
                self._put_on(known, path_for_kernel)
            except AttachError:  # some links may be on: tried again, their calls would count twice
                self._detach(*known.links.values())
                raise
            self.files[file] = known
        known.path_for_kernel = path_for_kernel
        if hot_runtime:
            self.hot_on(file, path_for_kernel)
        known.on_ns = known.on_ns or time.monotonic_ns()
        return known

    def _put_on(self, known: Attached, path_for_kernel: str) -> None:
        """What is wanted of a file and not on."""
        for key, points in known.wanted(self._apart).items():
            if key not in known.links and not (self._off and key[1] == APART):
                known.links[key] = self._link(path_for_kernel, known.path, points)

    def hot_on(self, file: File, path_for_kernel: str) -> None:
        known = self.files[file]
        known.hot = bool(known.hot_points)
        self._put_on(known, path_for_kernel)

    def hot_off(self, file: File) -> None:
        known = self.files[file]
        self._detach(*(links for key, links in known.links.items() if key[0]))
        known.links = {key: links for key, links in known.links.items() if not key[0]}
        known.hot = False

    def set_apart(self, operations: frozenset[int], paths: Mapping[File, str], now_ns: int) -> dict[int, int]:
        """Functions that `take_off` means from now on. Nothing is missed: each is in its old link, too, for a
        while. Which link of an operation counts is what this returns, for the kernel side to be told."""
        families = {family_of(ROWS[number - 1]) for number in operations | self._apart}
        self._apart, self._off = operations, False
        for each in (APART, *families):
            old = [links for known in self.files.values() for links in known.take(each)]
            self._replaced.append((now_ns + (BOTH_WAITS_NS if each == "wait" else BOTH_NS), old))
        self._variants.update(families)
        self._put_on_all(paths)
        return {
            number: self._variants[family_of(row)] % VARIANTS
            for number, row in enumerate(ROWS, start=1)
            if family_of(row) in families
        }

    def retire(self, now_ns: int) -> None:
        """Let go of links that were replaced a while ago."""
        self._let_go(*(links for until_ns, old in self._replaced if until_ns <= now_ns for links in old))
        self._replaced = [each for each in self._replaced if each[0] > now_ns]

    def take_off(self, everything: bool = False) -> None:
        """Functions with links of their own, of every file and of those to come, until they are put on."""
        self._off = True
        for known in self.files.values():
            families = {family for _, family in known.links} if everything else {APART}
            self._let_go(*known.take(*families))
        for guest in self._guests:
            if guest.beside & self._apart:
                self._take_extra_off(guest)

    def _let_go(self, *going: Links) -> None:
        """Not waited for: the kernel is done in a moment, its keeper later."""
        for links in going:
            links.let_go()
            self._leaving.append(links)

    def put_on(self, paths: Mapping[File, str]) -> None:
        """What was taken off; `paths`: where files are found now."""
        self._off = False
        self._put_on_all(paths)

    def _put_on_all(self, paths: Mapping[File, str]) -> None:
        self._leaving = [each for each in self._leaving if not each.gone()]
        self._incomplete = False
        for file, known in self.files.items():
            try:
                self._put_on(known, paths.get(file, known.path_for_kernel))
            except AttachError:  # the process it was found by has just ended
                self._incomplete = True
        for guest in self._guests:
            guest.path_for_kernel = paths.get(guest.file, guest.path_for_kernel)
            try:
                self._put_extra_on(guest)
            except OSError as error:
                guest.refused = (error.strerror or str(error)).splitlines()[0]

    def mend(self, paths: Mapping[File, str]) -> None:
        """What could not be put on again is tried once more."""
        if self._incomplete and not self._off:
            self._put_on_all(paths)

    def add_extra(self, guest: ExtraProbes) -> None:
        """On now, unless what it is beside is off; OSError where it is refused."""
        self._put_extra_on(guest)
        self._guests.append(guest)

    def remove_extra(self, guest: ExtraProbes) -> None:
        self._take_extra_off(guest)
        self._guests.remove(guest)
        self._leaving = [each for each in self._leaving if not each.gone(wait=each.prompt)]

    def _put_extra_on(self, guest: ExtraProbes) -> None:
        if guest.links is None and not (self._off and guest.beside & self._apart):
            guest.links = guest.shape.attach(guest.path_for_kernel, guest.points)

    def _take_extra_off(self, guest: ExtraProbes) -> None:
        if guest.links is not None:
            self._let_go(guest.links)
            guest.links = None

    def release(self, file: File) -> None:
        """Nobody uses the file any more."""
        self._detach(*self.files.pop(file).links.values())

    def drop_lost(self) -> list[str]:
        """Forget files whose probes are off although we hold them: their keeper was killed."""
        lost = [file for file, each in self.files.items() if any(one.gone() for one in each.links.values())]
        paths = [self.files[file].path for file in lost]
        for file in lost:
            self.release(file)
        return paths

    def _detach(self, *links: Links | None) -> None:
        """All at once, then wait where that is short."""
        going = [each for each in links if each]
        for each in going:
            each.let_go()
        self._leaving = [each for each in (*self._leaving, *going) if not each.gone(wait=each.prompt)]

    def _link(self, path_for_kernel: str, path: str, points: list[tuple[Point, Row]]) -> Links:
        try:
            return self._shape.attach(path_for_kernel, [self._with_variant(*each) for each in points])
        except OSError as error:
            why = (error.strerror or str(error)).splitlines()[0]
            raise AttachError(
                f"cannot attach {len(points)} functions of {path}: {why} (errno {error.errno})",
                hint="`ingero check` shows what this kernel allows.",
            ) from error

    def _with_variant(self, point: Point, row: Row) -> Point:
        return Point(point.offset, point.op, self._variants[family_of(row)] % VARIANTS)

    def _plan(self, path_for_kernel: str, path: str, kind: str) -> Attached:
        """What to probe in a file."""
        try:
            found = self._planner(path_for_kernel, kind, self._without, self._allow_costly)
        except FileFormatError as error:
            raise AttachError(f"cannot attach to {path}: {error.message}", hint=error.hint) from error
        planned = Attached(path, kind, [], [], found.functions, costly=found.costly, refused=found.refused)
        for offset, number in found.points:
            row = ROWS[number - 1]
            split_off = row.hot and row.layer == "runtime"
            (planned.hot_points if split_off else planned.points).append((Point(offset, number), row))
        return planned

    def counts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for attached in self.files.values():
            total += attached.counts()
        return total

    def close(self) -> None:
        for guest in list(self._guests):
            self.remove_extra(guest)
        self.retire(now_ns=1 << 63)
        self._detach(*(links for each in self.files.values() for links in each.links.values()))
        self.files.clear()


def plan(path_for_kernel: str, kind: str, without: frozenset[str], costly: bool) -> Plan:
    """Look up the functions of the table in the file and choose where each probe sits."""
    planned, seen = Plan(), set[int]()
    with elf.ElfFile(path_for_kernel) as file:
        for name, symbol in _found(file, kind):
            number, row = BY_NAME[name]
            if symbol.offset in seen or row.layer in without:
                continue
            seen.add(symbol.offset)
            planned.functions.append(Function(symbol.offset, symbol.size, number))
            _place(planned, file, symbol, number, costly)
    return planned


def _found(file: elf.ElfFile, kind: str) -> Iterable[tuple[str, elf.Symbol]]:
    """Functions of the table that the file has, by the table's name for them."""
    if kind not in COLLECTORS:
        return elf.find_in(file.functions, _names(kind)).items()
    for name in COLLECTORS[kind]:
        forms = elf.find_in(file.functions, [name + form for form in FORMS])
        if forms:
            return [(name, symbol) for symbol in forms.values()]
    return []


def _names(kind: str) -> Iterable[str]:
    if kind == "driver":
        return [name for name in BY_NAME if name.startswith("cu") and not name.startswith("cuda")]
    return [name for name in BY_NAME if name.startswith(PREFIXES[kind])]


def _place(planned: Plan, file: elf.ElfFile, symbol: elf.Symbol, number: int, costly: bool) -> None:
    site = probe_site(file.read(symbol.offset, min(32, max(symbol.size, 16))), file.machine)
    if site.refused:
        planned.refused.append(f"{symbol.name}: {site.reason}")
    # A single step costs 12-21 us: nothing for an allocation, ruin for a launch.
    elif not site.cheap and ROWS[number - 1].hot and not costly:
        planned.costly.append(f"{symbol.name}: {site.reason}")
    else:
        planned.points.append((symbol.offset + site.offset, number))
