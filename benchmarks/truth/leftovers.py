"""What was made on the machine, written down before it is made, so that it can always be taken away.

A run that is ended takes everything away itself. What a killed run left is taken away
by the next one, and only what is on the list: nothing else on the machine is touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

LIST = Path("/run/ingero-truth.list")
LOCK = Path("/run/ingero-truth.lock")


def note(kind: str, name: str) -> None:
    """Before `name` is made."""
    with LIST.open("a") as file:
        file.write(f"{kind} {name}\n")


def remove_group(path: Path) -> None:
    """A cgroup whose processes are ending or gone."""
    deadline = time.monotonic() + 5
    while path.exists() and time.monotonic() < deadline:
        try:
            path.rmdir()
        except OSError:  # still somebody in it
            time.sleep(0.02)


def unmount(path: Path) -> None:
    deadline = time.monotonic() + 5
    while path.is_mount() and time.monotonic() < deadline:
        if subprocess.run(["umount", str(path)], capture_output=True, check=False).returncode:
            time.sleep(0.05)


def remove_namespace(name: str) -> None:
    if Path("/run/netns", name).exists():
        subprocess.run(["ip", "netns", "del", name], check=False)


def take_away() -> None:
    """What a run before this one had to leave."""
    lines = LIST.read_text().splitlines() if LIST.exists() else []
    for line in reversed(lines):
        kind, _, name = line.partition(" ")
        if kind == "group":
            remove_group(Path(name))
        elif kind == "mount":
            unmount(Path(name))
            with contextlib.suppress(OSError):
                Path(name).rmdir()
        elif kind == "file":
            Path(name).unlink(missing_ok=True)
        elif kind == "folder":
            shutil.rmtree(name, ignore_errors=True)
        elif kind == "namespace":
            remove_namespace(name)
    LIST.unlink(missing_ok=True)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One run at a time: two would be each other's faults."""
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError("another run is under way: two would be each other's faults") from None
        take_away()
        try:
            yield
        finally:
            take_away()
