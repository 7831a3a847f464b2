"""The kernel side, loaded: BPF objects that share their maps, and the host probes.

Each object is loaded by itself, so that a kernel without one tracepoint loses one
source and says so. Maps of the same name are one map. Everything is held by
descriptors of this process: when it ends, however it ends, the kernel cleans up.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.attach import probes, syscalls
from ingero.errors import KernelError, PrivilegeError
from ingero.model import layout
from ingero.model.layout import Capacity, OpFlag, Spare
from ingero.model.sites import SAMPLES_PER_SECOND
from ingero.native import _shim

DEFAULT_RING_BYTES = int(Capacity.RING_BYTES)
RECORD_ALL_RING_BYTES = 64 * 1024 * 1024  # two seconds of 100,000 calls a second
RARE_PER_SECOND = 2000


@dataclass(frozen=True, slots=True)
class ObjectPlan:
    """How one object is loaded."""

    name: str
    source: str
    required: bool = False
    newer: tuple[str, ...] = ()  # objects that do the same in a better way; the first that the kernel takes
    absent: str = ""  # why the kernel may not have its tracepoint at all
    # program refused by this kernel -> the one to load in its place
    alternatives: dict[str, str] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()


CLOCK_PLAN = ObjectPlan("sample", "samples", newer=("sample_v700", "sample_v618"))
HOST_PLANS: tuple[ObjectPlan, ...] = (
    ObjectPlan(
        "sched",
        "sched",
        required=True,
        newer=("sched_v700", "sched_v618"),
        alternatives={"sched_switch": "sched_switch_v517"},
        optional=frozenset({"call_single_entry", "call_single_exit", "irq_work_entry", "irq_work_exit"}),
    ),
    ObjectPlan("process", "sched", required=True),
    ObjectPlan("tasks", "sched", required=True),
    ObjectPlan(
        "memory",
        "memory",
        optional=frozenset(
            {"memcg_reclaim_begin", "memcg_reclaim_end", "compaction_begin", "compaction_end"}
        ),
    ),
    ObjectPlan("oom", "memory", alternatives={"mark_victim": "mark_victim_v67"}),
    ObjectPlan("block_io", "block"),
    ObjectPlan("tcp", "tcp"),
    ObjectPlan(
        "xid", "xid", absent="no NVIDIA driver with its tracepoint is loaded, or tracefs is not mounted"
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the kernel side is told once."""

    trace_all: bool = True
    record_all: bool = False
    ring_bytes: int = DEFAULT_RING_BYTES
    rare_per_second: int = RARE_PER_SECOND
    walks_per_second: int = 2000
    sample_every_ns: int = 20_000_000
    wait_record_ns: int = 1_000_000
    stacks: bool = True
    without: frozenset[str] = frozenset()
    served: bool = False  # also probe files that another program serves (FUSE)
    spare: Spare = Spare.SPARE_NOBODY  # whose calls are not watched to their return (attach/probe_cost.py)


@dataclass(frozen=True, slots=True)
class Detail:
    """What is kept of calls besides their count and time."""

    rare_per_second: int = RARE_PER_SECOND  # records of an operation, by core
    walk_share: float = 0.0  # of a thread's time, for the stacks of its calls and waits; 0: as it comes
    sampled_less: int = 1  # times as long between two samples of an operation
    outermost: bool = False  # of calls within calls only the outermost is walked

    @property
    def walk_share_in_kernel(self) -> int:
        """In 65536ths; a small share is not none, which would mean as it comes."""
        return max(round(self.walk_share * 65536), 1) if self.walk_share else 0


@dataclass(slots=True)
class SourceState:
    """Probes of one source: how many are on, and why others are not."""

    attached: int = 0
    refused: list[str] = field(default_factory=list)


def possible_cpus() -> int:
    last = Path("/sys/devices/system/cpu/possible").read_text().strip().split(",")[-1]
    return int(last.split("-")[-1]) + 1


def online_cpus() -> list[int]:
    spans = (
        part.split("-") for part in Path("/sys/devices/system/cpu/online").read_text().strip().split(",")
    )
    return [cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)]


def object_path(name: str) -> str:
    machine = platform.machine()
    path = resources.files("ingero.native").joinpath("bpf", f"{name}.{machine}.bpf.o")
    if not path.is_file():
        raise KernelError(
            f"no probes for this processor ({machine})", hint="ingero has probes for x86_64 and aarch64."
        )
    return str(path)


STATUS = Path("/proc/self/status")
TOO_OLD = "ingero needs Linux 5.15 or later with BTF; `ingero check` shows what is missing."
BEHIND_FILTER = "The container's seccomp profile refuses bpf(): run it unconfined (docs/deploy.md, seccomp)."


def explain_refusal(error: OSError, what: str) -> KernelError | PrivilegeError:
    """The kernel's refusal in words a user can act on."""
    if error.errno in (errno.EPERM, errno.EACCES) and os.geteuid() != 0:
        return PrivilegeError(
            f"cannot load {what}: not permitted (needs CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE)",
            hint="Run it with sudo: sudo ingero trace",
        )
    lines = [line for line in (error.strerror or "").splitlines()[1:] if line.strip()]
    detail = lines[-3].strip() if len(lines) >= 3 else os.strerror(error.errno or 0)
    return KernelError(
        f"the kernel refused {what}: {os.strerror(error.errno or 0)} ({detail[:200]})",
        hint=BEHIND_FILTER if error.errno == errno.EPERM and filtered() else TOO_OLD,
    )


def filtered() -> bool:
    """Whether system calls of ours go through a seccomp filter, as those of containers do."""
    with suppress(OSError):
        return "\nSeccomp:\t2\n" in STATUS.read_text()
    return False


class KernelSide:
    """Loaded objects, shared maps, attached host probes."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.meanwhile: Callable[[], None] = lambda: (
            None
        )  # empties the rings, while a file's pages are waited for
        self.maps: dict[str, int] = {}
        # More than there are can be asked for, to see what a larger machine takes.
        self.cpus = max(possible_cpus(), int(os.environ.get("INGERO_CPUS") or 0))
        self.sources: dict[str, SourceState] = {}
        self._objects: list[_shim.Object] = []
        self._links: list[int] = []
        self._tasks_link = -1
        self._generation = 1
        self._learning = 0
        self._detail = Detail()
        self._watch, self._watch_ns, self._blind = 0, 0, False
        self._operations = probes.kernel_table(platform.machine())
        self.processes_refused = 0  # more targets than the kernel side has room for

    def load(
        self, name: str, off: frozenset[str] = frozenset(), types: dict[str, int] | None = None
    ) -> _shim.Object:
        """Load one object with the shared maps; OSError where the kernel refuses it."""
        loaded = _shim.Object(object_path(name))
        for program in off & set(loaded.programs()):
            loaded.autoload(program, False)
        for program, number in (types or {}).items():
            loaded.attach_type(program, number)
        self._share_maps(loaded)
        loaded.load()
        for map_name, *_ in loaded.maps():
            if "." not in map_name and map_name not in self.maps:
                self.maps[map_name] = loaded.map_fd(map_name)
        self._objects.append(loaded)
        return loaded

    def _share_maps(self, loaded: _shim.Object) -> None:
        for name, *_ in loaded.maps():
            if name in self.maps:
                loaded.reuse(name, self.maps[name])
            elif name == "ring":
                loaded.resize(name, self.settings.ring_bytes)
            elif name == "cores":
                loaded.resize(name, self.cpus)

    def configure(self) -> None:
        """Fill the tables the programs read."""
        machine = platform.machine()
        self._write_settings()
        self._fill("op_info", self._operations)
        self._fill("syscall_class", syscalls.wait_classes(machine))

    def _write_settings(self) -> None:
        settings = np.zeros(1, layout.SETTINGS)
        settings["agent_pid"] = os.getpid()
        settings["trace_all"] = self.settings.trace_all
        settings["record_all"] = self.settings.record_all
        settings["rare_per_second"] = min(self._detail.rare_per_second, self.settings.rare_per_second)
        settings["sample_every_ns"] = self.settings.sample_every_ns * self._detail.sampled_less
        settings["wait_record_ns"] = self.settings.wait_record_ns
        settings["stacks"] = self.settings.stacks
        settings["spare"] = int(self.settings.spare)
        settings["generation"] = self._generation
        settings["learning"] = self._learning
        settings["watch"] = self._watch
        settings["watch_ns"] = self._watch_ns
        settings["blind"] = self._blind
        settings["walk_share"] = self._detail.walk_share_in_kernel
        settings["outermost"] = self._detail.outermost
        settings["walks_per_second"] = self.settings.walks_per_second
        self._fill("settings", settings)

    def look_for_names(self, number: int) -> None:
        """Kernel names are looked for, for the nth time; 0: no longer."""
        self._learning = number
        self._write_settings()

    def watch(self, number: int, detail: Detail, blind: bool) -> None:
        """`number` and `blind`: see settings.watch on the kernel side."""
        if number != self._watch:
            self._watch_ns = time.monotonic_ns()
        self._watch, self._detail, self._blind = number, detail, blind
        self._write_settings()

    def set_watched(
        self, operations: Iterable[int], every: int = 1, closed: bool = False, cycled: bool = False
    ) -> None:
        """One call of `every` is timed, or none is looked at; `cycled`: both in turns."""
        for number in operations:
            row = self._operations[number : number + 1]
            flags = int(row["flags"][0]) & ~int(OpFlag.OP_CLOSED | OpFlag.OP_CYCLED)
            flags |= int(OpFlag.OP_CLOSED) if closed else 0
            row["flags"] = flags | (int(OpFlag.OP_CYCLED) if cycled else 0)
            row["every"] = every if every > 1 else 0
            self._write_operation(number)

    def set_meter(self, operation: int, meter: int) -> None:
        """Its hits are counted apart from now on."""
        self._operations["meter"][operation] = meter
        self._write_operation(operation)

    def set_variants(self, variants: Mapping[int, int]) -> None:
        """Which link of an operation counts."""
        for number, variant in variants.items():
            self._operations["variant"][number] = variant
            self._write_operation(number)

    def _write_operation(self, number: int) -> None:
        row = self._operations[number : number + 1]
        _shim.map_update(self.maps["op_info"], number.to_bytes(4, "little"), row.tobytes())

    def forget_proc(self, pid: int) -> None:
        """The process has ended."""
        _shim.map_delete(self.maps["procs"], pid.to_bytes(4, "little"))

    def write_proc(self, pid: int, proc: NDArray[np.void]) -> None:
        """Make a process a target, or change what is known of it."""
        try:
            _shim.map_update(self.maps["procs"], pid.to_bytes(4, "little"), proc.tobytes())
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            self.processes_refused += 1
        self._generation += 1
        self._write_settings()

    def _fill(self, map_name: str, table: NDArray[Any]) -> None:
        for index in range(len(table)):
            _shim.map_update(
                self.maps[map_name], index.to_bytes(4, "little"), table[index : index + 1].tobytes()
            )

    def attach_host(self) -> None:
        """Attach scheduler, memory, block and network probes; optional ones may be missing."""
        for plan in HOST_PLANS:
            if plan.source in self.settings.without and not plan.required:
                continue
            state = self.sources.setdefault(plan.source, SourceState())
            try:
                self._attach_plan(plan, state)
            except OSError as error:
                refusal = explain_refusal(error, f"the {plan.name} probes")
                if plan.required:
                    raise refusal from error
                state.refused.append(
                    plan.absent if error.errno == errno.ENOENT and plan.absent else refusal.message
                )

    def attach_clock(self) -> None:
        """Sample what the cores do; without it the time on a core has no lines."""
        state = self.sources.setdefault("samples", SourceState())
        if not self.settings.stacks or "samples" in self.settings.without:
            return
        try:
            program = self._load_plan(CLOCK_PLAN)[0].program_fd("sample")
            for cpu in online_cpus():
                self._links.append(_shim.clock_event(program, cpu, SAMPLES_PER_SECOND))
                state.attached += 1
        except OSError as error:
            state.refused.append(explain_refusal(error, "the clock that samples the cores").message)

    def write_python(self, pid: int, python: NDArray[np.void]) -> None:
        """How to read a process's Python frames; all zeroes: it has none that can be read."""
        try:
            _shim.map_update(self.maps["pythons"], pid.to_bytes(4, "little"), python.tobytes())
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            self.processes_refused += 1

    def _attach_plan(self, plan: ObjectPlan, state: SourceState) -> None:
        loaded, off = self._load_plan(plan)
        for program in loaded.programs():
            if program in off:
                continue
            link = loaded.attach(program)
            if program == "each_task":
                self._tasks_link = link
            self._links.append(link)
            state.attached += 1

    def _load_plan(self, plan: ObjectPlan) -> tuple[_shim.Object, frozenset[str]]:
        """The newest form that the kernel takes."""
        early = os.environ.get("INGERO_WAIT_LINES") == "early"  # as before 6.18
        for name in () if early else plan.newer:
            with suppress(OSError):
                return self._load_form(replace(plan, name=name, alternatives={}))
        return self._load_form(plan)

    def _load_form(self, plan: ObjectPlan) -> tuple[_shim.Object, frozenset[str]]:
        """A refused program gives way to its older form, if it has one."""
        off = frozenset(plan.alternatives.values())
        while True:
            try:
                return self.load(plan.name, off), off
            except OSError as error:
                match = re.search(r"prog '(\w+)'", error.strerror or "")
                program = match.group(1) if match else ""
                if program in plan.alternatives and program not in off:
                    off = (off | {program}) - {plan.alternatives[program]}
                elif program in plan.optional and program not in off:
                    off |= {program}
                else:
                    raise

    def read_threads(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Every traced thread's accounting; takes in threads not seen before."""
        if self._tasks_link < 0:
            return np.zeros(0, layout.THREAD_TOTALS)
        fd = _shim.iterate(self._tasks_link)
        try:
            chunks = []
            while chunk := os.read(fd, 1 << 18):
                chunks.append(chunk)
        finally:
            os.close(fd)
        return np.frombuffer(b"".join(chunks), layout.THREAD_TOTALS)

    def close(self) -> None:
        for link in self._links:
            os.close(link)
        self._links.clear()
        self._tasks_link = -1
        self._objects.clear()
        self.maps.clear()
