"""SQL of others, run in a process of its own that dies at its limit.

SQLite cannot be stopped inside one function, and `instr` or `trim` over a few
megabytes takes hours; a timer of the kernel ends the process wherever it is. Its
temporary files are bounded there too: a sort larger than memory needs them, and must
not fill the disk. It starts in some 50 ms, for it loads SQLite and little else.
"""

from __future__ import annotations

import marshal
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingero import isolated
from ingero.errors import IngeroError, StoreError, UsageError
from ingero.store import guard, opening
from ingero.store.guard import Limits, Rows

if TYPE_CHECKING:
    from ingero.store.reader import Reader

GRACE_S = 0.5  # guard.py stops most statements by itself, and says so better
FILES = 4  # a sort has up to two
DISK_SHARE = 8  # one file may take this part of what is free; all of them half of it


def run(reader: Reader, sql: str, limits: Limits | None = None) -> Rows:
    """Run exactly one reading statement of somebody else's."""
    limits = limits or Limits()
    asked = (str(reader.path.absolute()), reader.imported, list(reader.private_views), sql, astuple(limits))
    with isolated.start(__name__, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        answer, _ = process.communicate(marshal.dumps(asked))
    code = process.returncode
    if code == -signal.SIGALRM:
        raise guard.too_long(limits)
    if code != 0:
        why = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise StoreError(f"the process that ran the query ended ({why})", hint=guard.NARROW)
    return _understood(marshal.loads(answer))


def _understood(answer: tuple[Any, ...]) -> Rows:
    kind, *told = answer
    if kind == "rows":
        return Rows(*told)
    raise {"usage": UsageError}.get(kind, StoreError)(told[0], hint=told[1])


def _answer(asked: tuple[Any, ...]) -> tuple[Any, ...]:
    path, imported, views, sql, limits = asked
    try:
        connection = _opened(Path(path), imported, views)
        allowed = _bounded(Limits(*limits))
        found = guard.run(connection, sql, allowed)
        return "rows", found.columns, found.rows, found.truncated, found.unweighted
    except IngeroError as error:
        return "usage" if isinstance(error, UsageError) else "store", error.message, error.hint


def _opened(path: Path, imported: bool, views: list[str]) -> sqlite3.Connection:
    try:
        if imported:
            from ingero.store.reader import Reader

            connection = Reader(path).connection
        else:
            connection = opening.open_read_only(path)
        opening.add_private_views(connection, views)
    except sqlite3.Error as error:
        raise opening.opening_error(path, error) from error
    return connection


def _bounded(limits: Limits) -> Limits:
    """From now on this process ends at the time, and writes no more than this."""
    allowed = replace(limits, temporary_bytes=min(limits.temporary_bytes, _free_bytes() // DISK_SHARE))
    resource.setrlimit(resource.RLIMIT_FSIZE, (allowed.temporary_bytes, allowed.temporary_bytes))
    spare = os.open(os.devnull, os.O_RDONLY)  # the lowest number that is free
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare + FILES, spare + FILES))
    signal.setitimer(signal.ITIMER_REAL, allowed.seconds + GRACE_S)
    return allowed


def _free_bytes() -> int:
    """Where SQLite puts its temporary files."""
    named = (os.environ.get("SQLITE_TMPDIR"), os.environ.get("TMPDIR"), "/var/tmp", "/usr/tmp", "/tmp")
    folder = next((name for name in named if name and Path(name).is_dir() and os.access(name, os.W_OK)), ".")
    return shutil.disk_usage(folder).free


def _work() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to both; who asked decides
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    answer = _answer(marshal.load(sys.stdin.buffer))
    marshal.dump(answer, sys.stdout.buffer)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    _work()
