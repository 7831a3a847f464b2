"""Before a trace begins: what it needs of the machine, that it is the only one, and who asks for the end
meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingero import rights
from ingero.discover.host import counts_own_processes, has_btf, missing_capabilities
from ingero.errors import IngeroError, KernelError, PrivilegeError
from ingero.model.live import Surface

# The start of a trace takes seconds: each step is told, and whoever asks for the end meanwhile gets it.
#
# A command that waits behind its gate then never runs: being asked to stop before it began is
# no reason to begin.

INTERRUPTED = 130  # as a shell says it; nothing ran that could say anything else


class StoppedError(Exception):
    """Told to stop before it began."""


class Starting:
    """Says what is being done, and notices that it is not wanted any more."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface

    def step(self, doing: str) -> None:
        if self._surface.stop_requested.is_set():
            raise StoppedError
        self._surface.starting(doing)

    def attaching(self, processes: int) -> None:
        self.step(f"attaching to {processes} process{'es' if processes != 1 else ''}")

    @contextmanager
    def told(self) -> Iterator[None]:
        """Whatever becomes of it: nothing of it stays on the screen."""
        try:
            yield
            self.step("")
        except BaseException:
            self._surface.starting("")
            raise


# One trace per host: a lock that dies with its owner.
#
# flock, so that a killed agent leaves nothing to clean up; the file holds the
# owner's PID only to name it in the refusal.


DEFAULT_DIRECTORY = "/run/ingero"


def _require_own(directory: Path) -> None:
    """Root makes a lock and a socket there: nobody else may exchange the folder meanwhile."""
    if rights.whose(directory) is not None:
        raise PrivilegeError(
            f"cannot lock {directory}: other users can change this folder or one above it",
            hint="Set INGERO_RUN_DIR to a folder that only root can change, or unset it.",
        )


class InstanceLock:
    """Held while tracing."""

    def __init__(self) -> None:
        directory = Path(os.environ.get("INGERO_RUN_DIR", DEFAULT_DIRECTORY))
        path = directory / "trace.lock"
        try:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            _require_own(directory)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise PrivilegeError(
                f"cannot lock {path}: {error.strerror}",
                hint="Run it with sudo, or set INGERO_RUN_DIR to a directory you can write to.",
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise IngeroError(
                f"another trace runs on this host (PID {owner})",
                hint="Stop it first, or read its database while it runs: ingero query",
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._fd)


# What a trace needs of the machine before it begins.


MAX_DESCRIPTORS = 1 << 16
NEEDED = ("CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE")


def require_privileges() -> None:
    missing = [name for name in missing_capabilities() if name in NEEDED]
    if missing:
        raise PrivilegeError(
            f"cannot trace: {', '.join(missing)} missing", hint="Run it with sudo: sudo ingero trace"
        )
    if not has_btf():
        raise KernelError(
            "cannot trace: this kernel has no BTF (/sys/kernel/btf/vmlinux)",
            hint="Use a kernel built with CONFIG_DEBUG_INFO_BTF=y; distributions' kernels are.",
        )

    if counts_own_processes():
        raise KernelError(
            "cannot trace from here: this container has its own process numbers",
            hint="Run it outside the container, or share the host's process numbers: "
            "docker run --pid host, hostPID: true in a pod.",
        )


def raise_descriptor_limit() -> None:
    """The usual 1024 are few where every probed function takes four (the perf shape)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
