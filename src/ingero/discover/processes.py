"""The processes of this host, read from /proc.

Everything about one process is read through one handle on its /proc directory: the
handle dies with the process, so a PID that is reused meanwhile yields None instead of
a mixture of two processes. Names and command lines are chosen by their owners:
control characters are replaced before anybody prints them.
Threads and memory are not looked at here.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from ingero.discover import containers, tenants
from ingero.errors import TargetError
from ingero.model.window import Container, Process
from ingero.units import visible

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PF_KTHREAD = 0x00200000
MAX_CMDLINE_CHARS = 1024
MAX_ENVIRON_BYTES = 1 << 20

RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
LOCAL_RANK_NAMES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
WORLD_SIZE_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
DEVICE_NAMES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
KEPT_NAMES = frozenset((*RANK_NAMES, *LOCAL_RANK_NAMES, *WORLD_SIZE_NAMES, *DEVICE_NAMES, *tenants.VARIABLES))


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat that matter here."""

    pid: int
    comm: str
    state: str
    parent_pid: int
    start_ns: int  # CLOCK_BOOTTIME, in whole clock ticks
    kernel: bool = False  # a thread of the kernel's: no code of its own to trace


def is_filtered(pid: int) -> bool:
    """Whether its system calls are judged by seccomp; False, too, of one that is gone."""
    try:
        with ProcessHandle(pid) as handle:
            status = handle.read("status")
    except OSError:
        return False
    return re.search(rb"^Seccomp:\s*[12]$", status, re.M) is not None


class ProcessHandle:
    """An open /proc/PID directory: reads fail once that very process is gone."""

    def __init__(self, pid: int) -> None:
        self.fd = os.open(f"/proc/{int(pid)}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> ProcessHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)

    def read(self, name: str, limit_bytes: int = 1 << 20) -> bytes:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.fd)
        try:
            parts = []
            while limit_bytes > 0 and (part := os.read(fd, min(limit_bytes, 1 << 16))):
                parts.append(part)
                limit_bytes -= len(part)
            return b"".join(parts)
        finally:
            os.close(fd)


def printable(raw: bytes) -> str:
    """Text of a traced process without characters that drive a terminal."""
    return visible(raw.decode("utf-8", "replace"))


def parse_stat(raw: bytes) -> Stat:
    """The name may hold spaces and brackets: it ends at the last one."""
    head, _, tail = raw.rpartition(b")")
    pid, _, comm = head.partition(b" (")
    fields = tail.split()
    start_ns, kernel = int(fields[19]) * TICK_NS, bool(int(fields[6]) & PF_KTHREAD)
    return Stat(int(pid), printable(comm), fields[0].decode(), int(fields[1]), start_ns, kernel)


def same_start(one_ns: int, other_ns: int) -> bool:
    """/proc counts start times in clock ticks, the kernel in nanoseconds: compare what both know."""
    return one_ns // TICK_NS == other_ns // TICK_NS


def parse_environment(raw: bytes, names: frozenset[str] = KEPT_NAMES) -> dict[str, str]:
    """The named variables only: the rest may hold secrets and is not kept."""
    kept: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        key = name.decode("utf-8", "replace")
        if equals and key in names:
            kept.setdefault(key, printable(value[:256]))
    return kept


def _first_number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environment.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
    return None


def _optional(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except (PermissionError, ProcessLookupError):  # another user's, or a zombie: the rest still counts
        return b""


def environment(pid: int) -> dict[str, str]:
    """Ranks and visible devices as the process was started with; empty when it may not be read."""
    try:
        with ProcessHandle(pid) as handle:
            return parse_environment(handle.read("environ", MAX_ENVIRON_BYTES))
    except (OSError, ValueError):
        return {}


def cgroup_mounts() -> list[containers.Mount]:
    try:
        return containers.parse_mounts(Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape"))
    except OSError:
        return []


def read_stat(pid: int) -> Stat | None:
    try:
        with ProcessHandle(pid) as handle:
            return parse_stat(handle.read("stat", 4096))
    except (OSError, ValueError, IndexError):
        return None


def read_process(
    pid: int, mounts: list[containers.Mount] | None = None, with_memory: bool = True
) -> Process | None:
    """The process, or None when there is no such process (any more)."""
    found = read_process_and_container(pid, mounts, with_memory)
    return found[0] if found else None


def read_process_and_container(
    pid: int, mounts: list[containers.Mount] | None = None, with_memory: bool = True
) -> tuple[Process, Container] | None:
    """`with_memory`: with its command line and environment, which lie in its memory and may never come."""
    try:
        with ProcessHandle(pid) as handle:
            return _read(handle, cgroup_mounts() if mounts is None else mounts, with_memory)
    except (OSError, ValueError, IndexError):
        return None


def _read(
    handle: ProcessHandle, mounts: list[containers.Mount], with_memory: bool
) -> tuple[Process, Container]:
    stat = parse_stat(handle.read("stat", 4096))
    environment = _optional(lambda: handle.read("environ", MAX_ENVIRON_BYTES)) if with_memory else b""
    cgroup = _optional(lambda: handle.read("cgroup", 1 << 16)).decode("utf-8", "replace")
    container = containers.describe(cgroup, mounts)
    status = handle.read("status", 1 << 16)
    uid = _status_numbers(status, b"Uid")[0]
    told = tenants.of_cgroups(containers.parse_cgroups(cgroup).values())
    # A number means a name of ours only where the container has no users of its own.
    if not container.container_id and (user := tenants.USERS.name(uid)):
        told = (*told, ("user", user))
    process = Process(
        pid=stat.pid,
        start_ns=stat.start_ns,
        comm=stat.comm,
        cmdline="",
        cgroup_id=container.cgroup_id,
        uid=uid,
        parent_pid=stat.parent_pid or None,
        cpus=_allowed_cpus(status),
        labels=told,
    )
    arguments = _optional(lambda: handle.read("cmdline", 4 * MAX_CMDLINE_CHARS)) if with_memory else b""
    return started_with(process, arguments, environment), container


def started_with(process: Process, arguments: bytes, environment: bytes) -> Process:
    """What its arguments and environment say of it."""
    kept = parse_environment(environment)
    return replace(
        process,
        cmdline=_command_line(arguments),
        rank=_first_number(kept, RANK_NAMES),
        local_rank=_first_number(kept, LOCAL_RANK_NAMES),
        world_size=_first_number(kept, WORLD_SIZE_NAMES),
        labels=tenants.with_environment(process.labels, kept),
    )


def _allowed_cpus(status: bytes) -> str:
    found = re.search(rb"^Cpus_allowed_list:\t([\d,-]{1,1024})$", status, re.MULTILINE)
    return found[1].decode() if found else ""


def _command_line(raw: bytes) -> str:
    spaced = raw.rstrip(b"\0").translate(bytes.maketrans(b"\0\n\t", b"   "))
    return printable(spaced)[:MAX_CMDLINE_CHARS]


def _status_numbers(status: bytes, field: bytes) -> list[int]:
    found = re.search(rb"^" + field + rb":((?:\t\d+)+)$", status, re.MULTILINE)
    if not found:
        raise ValueError(f"no {field.decode()} in /proc/PID/status")
    return [int(number) for number in found[1].split()]


def user_ids(pid: int) -> set[int]:
    """Real, effective, saved and file system user of a process; empty where there is none."""
    try:
        with ProcessHandle(pid) as handle:
            return set(_status_numbers(handle.read("status", 1 << 16), b"Uid"))
    except (OSError, ValueError):
        return set()


def still_runs(process: Process) -> bool:
    """Whether this very process, not a later one with its PID, is alive."""
    stat = read_stat(process.pid)
    return stat is not None and stat.state not in "ZX" and same_start(stat.start_ns, process.start_ns)


def has_ended(pid: int) -> bool:
    """Whether nobody with this PID runs any more."""
    stat = read_stat(pid)
    return stat is None or stat.state in "ZX"


def shares_files(pid: int) -> bool:
    """Whether a path means the same file to that process as to us."""
    try:
        mounts = Path(f"/proc/{pid}/ns/mnt").readlink()
        return mounts == Path("/proc/self/ns/mnt").readlink() and Path(
            f"/proc/{pid}/root"
        ).readlink() == Path("/")
    except OSError:
        return False


def list_pids() -> list[int]:
    return sorted(int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())


def descendants(*pids: int) -> list[int]:
    """Children of processes, their children and so on; the processes themselves are not among them."""
    children: dict[int, list[int]] = {}
    for each in list_pids():
        stat = read_stat(each)
        if stat:
            children.setdefault(stat.parent_pid, []).append(each)
    found: dict[int, None] = {}
    roots, todo = set(pids), list(pids)
    while todo:
        # a PID reused during the scan could close a ring
        fresh = [each for each in children.get(todo.pop(), []) if each not in found and each not in roots]
        found.update(dict.fromkeys(fresh))
        todo += fresh
    return list(found)


def all_processes() -> Iterator[tuple[Process, Container]]:
    mounts = cgroup_mounts()
    for pid in list_pids():
        found = read_process_and_container(pid, mounts)
        if found:
            yield found


def user_id(user: str | int) -> int:
    if isinstance(user, int) or (user.isascii() and user.isdigit()):
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError) as error:
        raise TargetError(f"no user {user!r} on this host", hint="Pass a user name or number.") from error


def namespace_pids(pid: int) -> list[int]:
    """The PID as seen from here, then in each nested namespace; the last is the container's own."""
    try:
        with ProcessHandle(pid) as handle:
            return _status_numbers(handle.read("status", 1 << 16), b"NSpid")
    except (OSError, ValueError):
        return []


def missing_process(pid: int) -> TargetError:
    """The error for a PID that is not here; says so when a container knows it under that number."""
    inside = [outer for outer in list_pids() if namespace_pids(outer)[1:][-1:] == [pid]]
    hint = "Run `ps -e` to see what runs here."
    if inside:
        listed = ", ".join(str(outer) for outer in inside[:5])
        hint = f"Inside a container {pid} is a process that is {listed} on this host; pass that number."
    return TargetError(f"no process {pid}", hint=hint)
