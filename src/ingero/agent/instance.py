"""One trace per host: a lock that dies with its owner.

flock, so that a killed agent leaves nothing to clean up; the file holds the
owner's PID only to name it in the refusal.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ingero import rights
from ingero.errors import IngeroError, PrivilegeError

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
