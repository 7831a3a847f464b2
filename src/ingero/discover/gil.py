"""Where a Python process's interpreter lock lies, so that waits for it can be told from others.

The main interpreter's lock is part of the variable `_PyRuntime` (CPython 3.9 to 3.14):
a futex inside that variable is the lock, or one of the runtime's own that are held for
an instant. Subinterpreters with a lock of their own have it elsewhere: not seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ingero.discover.libraries import Library
from ingero.discover.python_runtime import Runtime, RuntimeFinder

VERSIONS = tuple(f"3.{minor}" for minor in range(9, 15))


@dataclass(frozen=True, slots=True)
class Gil:
    """Addresses in the process; an empty range with the reason where it is not known."""

    start: int = 0
    end: int = 0
    why: str = ""
    library: Library | None = field(default=None, compare=False)  # the interpreter's file


class GilFinder:
    """Finds the lock of processes; a file is read once per content."""

    def __init__(self, runtimes: RuntimeFinder | None = None) -> None:
        self._runtimes = runtimes or RuntimeFinder()

    def gil_of(self, pid: int) -> Gil | None:
        """None: no Python runs in this process. Raises ProcessLookupError when it is gone."""
        runtime = self._runtimes.runtime_of(pid)
        return lock_of(runtime) if runtime else None


def lock_of(runtime: Runtime) -> Gil:
    """The lock of an interpreter that was found."""
    why = _reason(runtime)
    if why:
        return Gil(why=why, library=runtime.library)
    return Gil(runtime.start, runtime.end, library=runtime.library)


def _reason(runtime: Runtime) -> str:
    """Why the lock is not watched; empty when it can be."""
    if runtime.free_threaded:
        return "a free-threaded Python has no interpreter lock"
    version = f"3.{runtime.minor}" if runtime.minor is not None else runtime.version
    if not runtime.why and version not in VERSIONS:
        return f"Python {version or 'of unknown version'}: only {VERSIONS[0]} to {VERSIONS[-1]} are known"
    return runtime.why
