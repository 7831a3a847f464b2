"""What `ingero check` looks at on this host: one small function per line.

A check never raises and never stops the others: one that breaks becomes a warning that
says so. Those that need the loaded probes (attach shapes, what a hit costs) are passed
in by the caller. Nothing is changed on the host.
"""

from __future__ import annotations

import os
import platform
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from ingero.discover import gpu_devices, host, processes, python_runtime
from ingero.discover.libraries import Library, LibraryFinder
from ingero.discover.preattach import cached_paths
from ingero.discover.python_layout import layout_of
from ingero.discover.python_runtime import GilFinder, RuntimeFinder
from ingero.model.check_line import Check

OLDEST_TRIED_KERNEL = (5, 15)
ENOUGH_FREE_BYTES = 1 << 30
Source = Callable[[], Check | Iterable[Check]]


def run_checks(
    storage: Path = Path(), more: Sequence[tuple[str, Source]] = (), finder: LibraryFinder | None = None
) -> list[Check]:
    """Every line of `check`; `more` are (name, check) pairs that other stages contribute."""
    libraries = finder or LibraryFinder()
    sources: list[tuple[str, Source]] = [
        ("kernel", kernel),
        ("BTF", btf),
        ("tracefs", tracefs),
        ("privileges", privileges),
        ("process numbers", process_numbers),
        ("lockdown", lockdown),
        ("ptrace", ptrace),
        ("kernel settings", kernel_settings),
        *more,
        ("NVIDIA driver", nvidia_driver),
        ("GPUs", gpu_list),
        ("CUDA libraries", lambda: cuda_libraries(libraries)),
        ("Python", lambda: python_interpreters(libraries)),
        ("containers", container_runtimes),
        ("free space", lambda: free_space(storage)),
    ]
    return [check for name, source in sources for check in _safely(name, source)]


def _safely(name: str, source: Source) -> list[Check]:
    try:
        result = source()
        return [result] if isinstance(result, Check) else list(result)
    except Exception as error:  # a mistake of ours in one check must not hide the others
        advice = "This is a bug: please report it with the output of `ingero check --json`."
        return [Check(name, "warning", f"could not be checked: {type(error).__name__}: {error}", advice)]


def kernel() -> Check:
    release = host.kernel_release()
    value = f"{release} ({platform.machine()}, {host.distribution()})"
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST_TRIED_KERNEL:
        return Check("kernel", "warning", value, "Kernels below 5.15 are not tested; use a newer one.")
    if not was_tried(release, platform.machine()):
        advice = (
            "ingero has not been tested on this kernel; a trace says at its start what the kernel refuses."
        )
        return Check("kernel", "warning", value, advice)
    return Check("kernel", "ok", value)


def btf() -> Check:
    if host.has_btf():
        return Check("BTF", "ok", "/sys/kernel/btf/vmlinux")
    advice = "Use a kernel built with CONFIG_DEBUG_INFO_BTF=y; every large distribution ships one."
    return Check("BTF", "failed", "the kernel does not describe its types", advice)


def tracefs() -> Check:
    folder = host.tracefs()
    if folder:
        return Check("tracefs", "ok", folder)
    advice = (
        "Only old attach shapes and GPU fault events need it: sudo mount -t tracefs nodev /sys/kernel/tracing"
    )
    return Check("tracefs", "warning", "not mounted or not readable", advice)


def privileges() -> Check:
    missing = host.missing_capabilities()
    if not missing:
        return Check("privileges", "ok", "every capability that tracing needs")
    value = "missing " + ", ".join(missing)
    if missing == ["CAP_SYS_RESOURCE"]:
        advice = "Only needed on kernels below 5.11, to lock memory for maps."
        return Check("privileges", "warning", value, advice)
    needed = {"CAP_BPF", "CAP_PERFMON"} & set(missing)
    # Not setcap: that file is often Debian's Python, and then everybody here can read every process.
    advice = "Run `sudo ingero trace`. For a service or a container docs/deploy.md lists the capabilities."
    return Check("privileges", "failed" if needed else "warning", value, advice)


def process_numbers() -> Check:
    if not host.counts_own_processes():
        return Check("process numbers", "ok", "the same as the host's")
    advice = (
        "Run it outside the container, or with the host's process numbers:"
        " docker run --pid host, hostPID: true in a pod."
    )
    return Check("process numbers", "failed", "this container has its own", advice)


def lockdown() -> Check:
    state = host.lockdown()
    if state == "confidentiality":
        advice = "Boot with lockdown=integrity (or without Secure Boot): this mode forbids reading with BPF."
        return Check("lockdown", "failed", state, advice)
    return Check("lockdown", "ok", state or "not built into the kernel")


def ptrace() -> Check:
    scope = host.kernel_number("yama/ptrace_scope")
    if scope is None:
        return Check("ptrace", "ok", "not restricted")
    value = f"ptrace_scope {scope}"
    allowed = "CAP_SYS_PTRACE" not in host.missing_capabilities()
    if scope == 0 or (scope < 3 and allowed):
        return Check("ptrace", "ok", value)
    advice = (
        "Memory of other processes (Python frames) cannot be read; "
        "set kernel.yama.ptrace_scope below 3 and run with sudo."
    )
    return Check("ptrace", "warning", value, advice)


def kernel_settings() -> Check:
    names = ("perf_event_paranoid", "unprivileged_bpf_disabled", "kptr_restrict")
    values = ((name, host.kernel_number(name)) for name in names)
    return Check(
        "kernel settings", "ok", ", ".join(f"{n} {'unknown' if v is None else v}" for n, v in values)
    )


def nvidia_driver() -> Check:
    version = gpu_devices.driver_version()
    if version:
        return Check("NVIDIA driver", "ok", version)
    advice = "Without it no CUDA job runs here; `ingero demo` and reading recordings still work."
    return Check("NVIDIA driver", "warning", "not loaded", advice)


def gpu_list() -> Check:
    report = gpu_devices.find_gpus()
    if report.gpus:
        value = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in report.gpus)
        advice = f"{report.problem}; pip install 'ingero[gpu]' for more." if report.problem else ""
        return Check("GPUs", "ok", value, advice)
    advice = (
        "pip install 'ingero[gpu]'" if "not installed" in report.problem else "See the NVIDIA driver above."
    )
    return Check("GPUs", "warning", f"none found ({report.problem or 'NVML lists none'})", advice)


def cuda_libraries(finder: LibraryFinder) -> Iterator[Check]:
    """One line per distinct file that a process has mapped."""
    users = library_users(finder)
    for library, names in users.values():
        yield Check("CUDA libraries", "ok", f"{library.path} ({library.kind}): {_listed(names)}")
    hidden = unreadable_processes()
    if hidden:
        advice = "Run `sudo ingero check` to look into processes of other users."
        if os.geteuid() == 0:
            lacks = ", ".join(host.missing_capabilities())
            advice = "They have rights that this root lacks" + (f" (it lacks {lacks})" if lacks else "")
            advice += ", which is usual in a container. All others can be traced."
        yield Check("CUDA libraries", "warning", f"processes that cannot be read: {hidden}", advice)
    if not users:
        installed = cached_paths()
        value = "no process has one mapped now"
        value += f"; installed: {_listed(installed)}" if installed else "; none in the loader's cache"
        advice = "" if installed else "Libraries inside Python environments are found once a job uses them."
        yield Check("CUDA libraries", "ok" if installed else "warning", value, advice)


def library_users(finder: LibraryFinder) -> dict[tuple[int, int], tuple[Library, list[str]]]:
    """Each distinct library file with the processes that map it, as 'pid name'."""
    users: dict[tuple[int, int], tuple[Library, list[str]]] = {}
    for pid in processes.list_pids():
        stat = processes.read_stat(pid)
        for library in finder.libraries_of(pid) if stat else ():
            names = users.setdefault(library.file, (library, []))[1]
            names.append(f"{pid} {stat.comm if stat else ''}")
    return users


def unreadable_processes() -> int:
    count = 0
    for pid in processes.list_pids():
        try:
            with processes.ProcessHandle(pid) as handle:
                handle.read("maps", 1)
        except PermissionError:
            count += 1
        except OSError:  # gone, or a kernel thread
            continue
    return count


def python_interpreters(finder: LibraryFinder) -> Iterator[Check]:
    """The interpreters of processes that use CUDA, else a count of all of them."""
    users = [int(name.split(" ", 1)[0]) for _, names in library_users(finder).values() for name in names]
    found = python_runtime.find_interpreters(sorted(set(users)) or processes.list_pids())
    runtimes = RuntimeFinder()
    lines = []
    for each in found[:20]:
        with suppress(ProcessLookupError):  # it ended meanwhile
            lines.append(_interpreter(each, runtimes))
    yield from lines or [Check("Python", "ok", "no interpreter runs now")]
    if len(found) > 20:
        yield Check("Python", "ok", f"and {len(found) - 20} more")


def _interpreter(found: python_runtime.Interpreter, runtimes: RuntimeFinder) -> Check:
    gil = GilFinder(runtimes).gil_of(found.pid)
    version = found.version or "of unknown version"
    threading = ", free-threaded" if found.free_threaded else ""
    unseen = f"; waits for the GIL cannot be told from other waits: {gil.why}" if gil and gil.why else ""
    value = f"process {found.pid}: {version}, {found.linkage}{threading}, {found.path}{unseen}"
    if found.pid == os.getpid():  # its own frames move while it looks at them
        return Check("Python", "ok", value)
    frames = layout_of(found.pid, runtimes)
    if frames is None or frames.layout is not None:
        route = f"; frames can be read, {frames.route}" if frames else ""
        return Check("Python", "ok", value + route)
    if frames.later:
        return Check("Python", "ok", f"{value}; frames cannot be read yet: {frames.why}")
    advice = "Its stacks are shown without Python lines; everything else is traced."
    return Check("Python", "warning", f"{value}; frames cannot be read: {frames.why}", advice)


def container_runtimes() -> Check:
    found = host.container_runtimes()
    return Check("containers", "ok", ", ".join(found) or "no container runtime seen")


def free_space(storage: Path) -> Check:
    free = host.free_bytes(storage)
    where = storage.absolute()
    if free is None:
        advice = "Pass another folder with --db."
        return Check("free space", "warning", f"cannot tell how much is free in {where}", advice)
    value = f"{free / (1 << 30):.1f} GiB in {where}"
    if free < ENOUGH_FREE_BYTES:
        advice = "Free some space, pass another folder with --db, or keep recordings small with --max-db."
        return Check("free space", "warning", value, advice)
    return Check("free space", "ok", value)


def _listed(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


# Kernels that somebody tried ingero on; `make test-kernels` writes the file.


def rows() -> list[dict[str, Any]]:
    text = resources.files("ingero.discover").joinpath("tried_kernels.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["kernel"]
    return found


def was_tried(release: str, machine: str) -> bool:
    """One of the same version, with every test passed; its distribution and patches may be others."""
    return any(
        each["machine"] == machine and not each["failed"] and _version(each["release"]) == _version(release)
        for each in rows()
    )


def _version(release: str) -> str:
    found = re.match(r"\d+\.\d+", release)
    return found.group() if found else release
