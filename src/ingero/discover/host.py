"""The machine: how busy it is, and the facts that decide what can be traced on it.

A value the kernel does not tell is None, never zero. The CPU share is that of the time
since the sampler was last asked, so its first answer has none.
Nothing here judges; host_checks.py does.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from ingero.model.window import SystemSample

CAPABILITIES = {
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYS_RESOURCE": 24,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
    "CAP_CHECKPOINT_RESTORE": 40,
}
TRACEFS_FOLDERS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
RUNTIME_SOCKETS = {
    "docker": ("/run/docker.sock", "/var/run/docker.sock"),
    "containerd": ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"),
    "cri-o": ("/run/crio/crio.sock", "/var/run/crio/crio.sock"),
    "podman": ("/run/podman/podman.sock",),
}
MAX_FILE_BYTES = 1 << 20
FIRST_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO, the same in every kernel


def read_text(path: str | Path) -> str | None:
    """A small kernel file, stripped; None when it is not there or may not be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return None


class SystemSampler:
    """CPU, memory, load and pressure at the moment of asking."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._before: tuple[int, int] | None = None

    def sample(self) -> SystemSample:
        memory = parse_meminfo(read_text(self._proc / "meminfo") or "")
        total, available = memory.get("MemTotal"), memory.get("MemAvailable")
        stat = read_text(self._proc / "stat") or ""
        return SystemSample(
            cpu_share=self._cpu_share(parse_cpu_ticks(stat)),
            memory_share=1 - available / total if total and available is not None else None,
            memory_available_bytes=available,
            load1=parse_load1(read_text(self._proc / "loadavg") or ""),
            cores=cores_online(stat),
            swap_bytes=swap_used_bytes(memory),
            psi_cpu_some=self._pressure("cpu"),
            psi_memory_some=self._pressure("memory"),
            psi_io_some=self._pressure("io"),
        )

    def _cpu_share(self, now: tuple[int, int] | None) -> float | None:
        before, self._before = self._before, now
        if before is None or now is None:
            return None
        busy, total = now[0] - before[0], now[1] - before[1]
        # idle and iowait may run backwards when a core goes offline
        return min(max(busy / total, 0.0), 1.0) if total > 0 else None

    def _pressure(self, resource: str) -> float | None:
        return parse_pressure(read_text(self._proc / "pressure" / resource) or "")


def parse_cpu_ticks(stat: str) -> tuple[int, int] | None:
    """(busy, total) ticks of all cores; guest time is already in user time."""
    match = re.match(r"cpu +((?:\d+ ?)+)", stat)
    if not match:
        return None
    ticks = [int(number) for number in match[1].split()][:8]
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)


def cores_online(stat: str) -> int:
    return len(re.findall(r"^cpu\d+ ", stat, re.MULTILINE)) or os.cpu_count() or 1


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by name."""
    found = re.findall(r"^([^\s:]+):\s+(\d+)( kB)?$", text, re.MULTILINE)
    return {name: int(number) * (1024 if unit else 1) for name, number, unit in found}


def swap_used_bytes(memory: Mapping[str, int]) -> int | None:
    if "SwapTotal" not in memory or "SwapFree" not in memory:
        return None
    return max(memory["SwapTotal"] - memory["SwapFree"], 0)


def parse_load1(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (IndexError, ValueError):
        return None


def parse_pressure(text: str) -> float | None:
    """Share of the last ten seconds in which some task waited, 0 to 1."""
    match = re.search(r"^some avg10=([0-9.]+)", text, re.MULTILINE)
    try:
        return float(match[1]) / 100 if match else None
    except ValueError:
        return None


def kernel_release() -> str:
    return platform.release()


def distribution() -> str:
    text = read_text("/etc/os-release") or ""
    match = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', text, re.MULTILINE)
    return match[1] if match else "unknown"


def has_btf() -> bool:
    return os.access("/sys/kernel/btf/vmlinux", os.R_OK)


def effective_capabilities(status: str | None = None) -> int:
    text = status if status is not None else read_text("/proc/self/status") or ""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", text, re.MULTILINE)
    return int(match[1], 16) if match else 0


def missing_capabilities(effective: int | None = None) -> list[str]:
    """Capabilities we want and do not have; CAP_SYS_ADMIN stands in for the newer, narrower ones."""
    held = effective_capabilities() if effective is None else effective
    missing = [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]
    if "CAP_SYS_ADMIN" not in missing:
        covered = {"CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE"}
        missing = [name for name in missing if name not in covered]
    elif not {"CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE"} & set(missing):
        missing.remove("CAP_SYS_ADMIN")
    return missing


def counts_own_processes(numbered: str | None = None) -> bool:
    """Whether /proc has other numbers than the kernel gives its probes, as in most containers."""
    try:
        return (numbered or str(Path("/proc/self/ns/pid").readlink())) != FIRST_PIDS
    except OSError:
        return False  # a kernel without them, or no /proc: there is no other numbering to be seen


def lockdown(text: str | None = None) -> str | None:
    """none, integrity or confidentiality; None where the kernel has no lockdown."""
    shown = text if text is not None else read_text("/sys/kernel/security/lockdown")
    match = re.search(r"\[(\w+)\]", shown or "")
    return match[1] if match else None


def kernel_number(name: str) -> int | None:
    """A setting below /proc/sys/kernel, such as perf_event_paranoid."""
    text = read_text(f"/proc/sys/kernel/{name}")
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def tracefs() -> str | None:
    """Where tracefs can be used; None when it is not mounted or may not be read."""
    for folder in TRACEFS_FOLDERS:
        if os.access(f"{folder}/events", os.R_OK | os.X_OK):
            return folder
    return None


def free_bytes(path: Path) -> int | None:
    """Space left for us on the file system that holds this path or its nearest existing parent."""
    for each in (path, *path.absolute().parents):
        try:
            counts = os.statvfs(each)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return counts.f_bavail * counts.f_frsize
    return None


def container_runtimes() -> list[str]:
    """Runtimes whose socket exists here."""
    return [
        name for name, sockets in RUNTIME_SOCKETS.items() if any(os.path.lexists(path) for path in sockets)
    ]
