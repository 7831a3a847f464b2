"""What jobs say of themselves: who may say it, how much of it, and of whom it is kept.

A job labels its own process. A label of a process nobody traces is remembered for a
while, the last of each key: jobs name their epoch before they touch CUDA, and a
launcher speaks for the ranks it starts. What is refused or too much is a loss.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ingero.agent.targets import Targets
from ingero.annotate import CALLER, OWN
from ingero.discover import processes
from ingero.model.window import Annotation, Container, Process, Window
from ingero.units import clean

# Labels a second. Steps come a few times a second, requests a few hundred times.
PER_PROCESS, PER_USER, IN_ALL = 2_000, 8_000, 16_000
NAMED_PER_USER = 200  # messages that name another process: each is looked up in /proc
# A key is stored for as long as the recording: nobody may use up those of others.
KEYS_PER_PROCESS, KEYS_PER_USER, KEYS_IN_ALL = 16, 64, 1_024
MAX_WAITING = 1_024  # processes that are no targets yet
ANCESTORS = 16
INVALID, REFUSED, RATE, KEYS, UNSENT = (
    "annotation_invalid", "annotation_refused", "annotation_rate", "annotation_keys", "annotation_unsent",
)  # fmt: skip
TOO_MANY, TOO_MANY_KEYS = "too many labels", "too many keys"
IsTarget = Callable[[int], bool]


class Annotations:
    """Heard in one thread, taken once a second in another."""

    def __init__(self, is_target: IsTarget) -> None:
        self._is_target = is_target
        self._lock = threading.Lock()
        self._heard: list[tuple[int, Annotation]] = []  # and the user who said it
        self._labels: Counter[tuple[str, int]] = Counter()  # this second, by process and by user
        self._losses: Counter[str] = Counter()
        self._keys: set[str] = set()
        self._keys_of: dict[int, set[str]] = {}  # by process
        self._keys_by: dict[int, set[str]] = {}  # by user: keys that were new when this user came with them
        self._waiting: dict[int, dict[str, tuple[int, Annotation]]] = {}

    def hear(self, raw: bytes, sender: tuple[int, int]) -> str:
        """A message and the PID and user the kernel vouches for; empty, or why it counts for nothing."""
        pid, uid = sender
        said = parse(raw, time.monotonic_ns())
        if said is None:
            return self._lose(INVALID, 1, "not understood")
        if said.unsent:
            self._lose(UNSENT, said.unsent)
        if not self._room(pid, uid, said):  # before anything is looked up
            return self._lose(RATE, len(said.labels), TOO_MANY)
        about = subject(said, pid, uid, self._is_target)
        if about is None:
            return self._lose(REFUSED, len(said.labels), "not a process of yours")
        if self._is_target(about) and not all(self._known_key(about, uid, key) for key in said.labels):
            return self._lose(KEYS, len(said.labels), TOO_MANY_KEYS)
        with self._lock:
            self._heard += [(uid, Annotation(about, said.at_ns, *label)) for label in said.labels.items()]
        return ""

    def _lose(self, reason: str, count: int, why: str = "") -> str:
        with self._lock:
            self._losses[reason] += count
        return why

    def _room(self, pid: int, uid: int, said: Message) -> bool:
        count = len(said.labels)
        wanted = [
            (("pid", pid), count, PER_PROCESS),
            (("uid", uid), count, PER_USER),
            (("", 0), count, IN_ALL),
        ]
        if said.pid != OWN:
            wanted.append((("named", uid), 1, NAMED_PER_USER))
        with self._lock:
            if any(self._labels[who] + more > most for who, more, most in wanted):
                return False
            for who, more, _ in wanted:
                self._labels[who] += more
        return True

    def take(
        self, live: Mapping[int, object], parents: Iterable[int | None]
    ) -> tuple[list[Annotation], list[int]]:
        """Labels of targets and their launchers since the last window; which of those are launchers."""
        with self._lock:
            heard, self._heard = self._heard, []
            self._labels.clear()
        strangers = self._waiting or any(each.pid not in live for _, each in heard)
        mine = live.keys() | (_ancestors(parents) if strangers else set())
        found = [each for pid in self._waiting.keys() & mine for each in self._still_true(pid)]
        for uid, each in heard:
            if each.pid in mine:
                found.append((uid, each))
            else:
                self._remember(uid, each)
        with self._lock:
            self._keys_of = {pid: keys for pid, keys in self._keys_of.items() if pid in mine}
        kept = [each for uid, each in found if self._known_key(each.pid, uid, each.key)]
        kept.sort(key=lambda each: each.at_ns)
        if len(kept) < len(found):
            self._lose(KEYS, len(found) - len(kept))
        return kept, sorted({each.pid for each in kept} - live.keys())

    def _known_key(self, pid: int, uid: int, key: str) -> bool:
        """Whether the process may use this key; from now on it is one of its keys."""
        with self._lock:
            of_process = self._keys_of.setdefault(pid, set())
            by_user = self._keys_by.setdefault(uid, set())
            new = key not in self._keys
            most = KEYS_PER_USER if uid else KEYS_IN_ALL
            if key not in of_process and len(of_process) >= KEYS_PER_PROCESS:
                return False
            if new and (len(by_user) >= most or len(self._keys) >= KEYS_IN_ALL):
                return False
            of_process.add(key)
            if new:
                by_user.add(key)
                self._keys.add(key)
        return True

    def _still_true(self, pid: int) -> list[tuple[int, Annotation]]:
        """What was remembered, unless the number has meanwhile gone to another process."""
        labels, stat = self._waiting.pop(pid).values(), processes.read_stat(pid)
        asleep_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        return [each for each in labels if stat and stat.start_ns <= each[1].at_ns + asleep_ns]

    def _remember(self, uid: int, label: Annotation) -> None:
        if label.pid not in self._waiting and len(self._waiting) >= MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        labels = self._waiting.setdefault(label.pid, {})
        if label.key in labels or len(labels) < KEYS_PER_PROCESS:
            labels[label.key] = uid, label

    def fill(self, window: Window, targets: Targets) -> None:
        traced = {**targets.gone, **targets.live}
        window.annotations, launchers = self.take(
            traced, (each.process.parent_pid for each in traced.values())
        )
        window.bystanders += launchers_of(launchers, targets.read)
        for reason, count in self.take_losses().items():
            window.losses[reason] = window.losses.get(reason, 0) + count

    def take_losses(self) -> dict[str, int]:
        with self._lock:
            losses, self._losses = self._losses, Counter()
        return dict(losses)


def subject(said: Message, pid: int, uid: int, is_target: IsTarget) -> int | None:
    """The process a message is about; None where the sender may not speak for it."""
    if said.pid == OWN:
        return pid or None  # 0: from a PID namespace that is not below ours
    about = _caller(pid, is_target) if said.pid == CALLER else _named(said.pid, pid)
    return about if about is not None and _belongs_to(about, uid) else None


def _caller(pid: int, is_target: IsTarget) -> int | None:
    """The nearest traced process above the sender, else its parent: a shell may stand between."""
    above = _above(pid)
    return next(filter(is_target, above), above[0] if above else None)


def _above(pid: int) -> list[int]:
    found: list[int] = []
    while len(found) < ANCESTORS and (stat := processes.read_stat(pid)) and stat.parent_pid > 1:
        pid = stat.parent_pid
        found.append(pid)
    return found


def _ancestors(parents: Iterable[int | None]) -> set[int]:
    starts = {pid for pid in parents if pid}
    return starts.union(*map(_above, starts)) if starts else starts


def _named(named: int, sender: int) -> int | None:
    """A number means the same to both only in one PID namespace: nobody names processes from a container."""
    try:
        same = Path(f"/proc/{sender}/ns/pid").samefile("/proc/self/ns/pid")
    except OSError:
        return None
    return named if same else None


def _belongs_to(pid: int, uid: int) -> bool:
    """With all of its identities, so that a program that gained some is not spoken for."""
    if uid == 0:
        return processes.read_stat(pid) is not None
    return processes.user_ids(pid) == {uid}


def launchers_of(
    pids: Iterable[int], read: Callable[[int], tuple[Process, Container] | None]
) -> list[Process]:
    """To be stored beside the targets: their labels hold for the ranks they started."""
    found = (read(pid) for pid in pids)
    return [replace(each[0], target=False) for each in found if each is not None]


# What a job's message says: checked, cut to size, made harmless. Anybody may have written it.
#
# See ingero.annotate for the other end.


MAX_LABELS = 16
MAX_KEY_CHARS = 32
MAX_VALUE_CHARS = 128
MAX_UNSENT = 100_000
LATE_NS = 10_000_000_000  # a job's own clock is believed this far back, and never ahead of ours
_HEAD = re.compile(rb"ingero1 (\d{1,19}) (-1|\d{1,10}) (\d{1,19})")
_KEY = re.compile(rf"[A-Za-z_][A-Za-z0-9_.-]{{0,{MAX_KEY_CHARS - 1}}}")


@dataclass(frozen=True, slots=True)
class Message:
    """`pid`: 0 the sender, -1 the job that called it, else a process it names."""

    at_ns: int  # CLOCK_MONOTONIC
    pid: int
    unsent: int
    labels: dict[str, str]


def parse(raw: bytes, arrived_ns: int) -> Message | None:
    """None where it is none of ours: nothing of it is kept then."""
    head, _, rest = raw.partition(b"\n")
    found = _HEAD.fullmatch(head)
    labels = _labels(rest.split(b"\n", MAX_LABELS)) if found else None
    if found is None or labels is None:
        return None
    at_ns, pid, unsent = map(int, found.groups())
    believed = arrived_ns - LATE_NS <= at_ns <= arrived_ns
    return Message(at_ns if believed else arrived_ns, pid, min(unsent, MAX_UNSENT), labels)


def _labels(lines: list[bytes]) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    if len(lines) > MAX_LABELS:
        return None
    for line in lines:
        key, equals, value = line.decode("utf-8", "replace").partition("=")
        if not equals or not _KEY.fullmatch(key):
            return None
        labels[key] = clean(value, MAX_VALUE_CHARS)
    return labels
