"""A command that is traced from its first call.

It waits behind a pipe until the probes are on; then it is what it would have been.
If the trace is refused meanwhile it never runs. Once it runs it is the user's: only
being told to stop ends it early, not the end of tracing.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ingero import isolated, rights
from ingero.discover.libraries import Library, LibraryFinder
from ingero.discover.preattach import preattach_candidates
from ingero.errors import TargetError

# A shell that waits for a line, then becomes the command; without the line it ends.
# Descriptor 9, because sh knows no numbers of two digits. $0 is how many descriptors
# it may have: ours are raised meanwhile.
WAIT_THEN_RUN = 'ulimit -S -n "$0"; read -r _ <&9 || exit 1; exec 9<&-; exec "$@"'
GATE = 9
GRACE_NS = 10_000_000_000


class Command:
    """The command: checked at once, started behind the gate, released, and waited for."""

    def __init__(self, words: tuple[str, ...], stdout_to_stderr: bool = False, as_root: bool = False) -> None:
        if shutil.which(words[0]) is None:
            raise TargetError(
                f"cannot start {words[0]}: no such command",
                hint="Give its full path, or check PATH (sudo changes it).",
            )
        self.words = words
        self._as = RunAs.caller(as_root)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._descriptors = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
        self._stdout_to_stderr = stdout_to_stderr
        self._gate = -1
        self._code: int | None = None
        self._asked_ns: int | None = None
        self._told_ns: int | None = None
        self.pid = 0

    def start(self) -> None:
        """Start it behind the gate."""
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # its exit code would be thrown away
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reading, self._gate = os.pipe()
        actions: list[tuple[int, int, int]] = [(os.POSIX_SPAWN_DUP2, reading, GATE)]
        if self._stdout_to_stderr:
            actions.append((os.POSIX_SPAWN_DUP2, sys.stderr.fileno(), 1))
        words = self._as.words(["/bin/sh", "-c", WAIT_THEN_RUN, self._descriptors, *self.words])
        try:
            self.pid = os.posix_spawn(
                words[0],
                words,
                self._as.environment(),
                file_actions=actions,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these, the command need not
            )
        finally:
            os.close(reading)

    def libraries(self, finder: LibraryFinder, everywhere: bool) -> list[Library]:
        """What it is likely to load; `everywhere`: looked for where that may be many."""
        try:
            cwd = Path.cwd()
        except OSError:  # the folder is gone
            cwd = None
        return preattach_candidates(
            self.words, self._as.environment(), finder, cwd=cwd, everywhere=everywhere
        )

    def release(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # killed while it waited
            os.write(self._gate, b"\n")
        self._close_gate()

    def _close_gate(self) -> None:
        os.close(self._gate)
        self._gate = -1

    def exit_code(self) -> int | None:
        """None while it runs; as a shell would say it: 128 + signal."""
        if self._code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code
        return self._code

    def ask_to_end(self, now_ns: int) -> None:
        """Told to stop: so is the command, and it gets time to. Called until it has ended."""
        if self._asked_ns is None:
            self._asked_ns = now_ns
        if self._told_ns is None:
            # A Ctrl-C reached it too: what it does about that must not be cut short.
            if not _on_our_terminal() or now_ns - self._asked_ns >= GRACE_NS:
                self._signal(signal.SIGTERM)
                self._told_ns = now_ns
        elif now_ns - self._told_ns >= GRACE_NS:
            self._signal(signal.SIGKILL)

    def wait(self, stop_requested: threading.Event) -> int:
        """Its exit code, once it has ended."""
        while (code := self.exit_code()) is None:
            if stop_requested.is_set():
                self.ask_to_end(time.monotonic_ns())
            time.sleep(0.02)
        return code

    def close(self) -> None:
        """A command that was never released never runs."""
        if self._gate >= 0:
            self._close_gate()
            os.waitpid(self.pid, 0)

    def _signal(self, number: int) -> None:
        if self.exit_code() is None:
            os.kill(self.pid, number)


def _on_our_terminal() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


# As whom the command of `trace -- COMMAND` runs: under sudo as the person who called it.
#
# sudo is for the tracing; the job is the user's, and so are the files it makes. The new process
# becomes the user before it becomes the command (ingero.becoming), because os.posix_spawn
# knows no users.


_OF_SUDO = ("SUDO_COMMAND", "SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_HOME", "MAIL")


@dataclass(frozen=True)
class RunAs:
    """Whose command it is; None: it stays what we are."""

    who: rights.User | None

    @classmethod
    def caller(cls, as_root: bool = False) -> RunAs:
        return cls(None if as_root else rights.invoking_user())

    def words(self, words: Sequence[str]) -> list[str]:
        """What to start, its program by its path."""
        if self.who is None:
            return list(words)
        numbers = (self.who.uid, self.who.gid, *self.who.groups)
        return isolated.command("ingero.becoming", ",".join(map(str, numbers)), *words)

    def environment(self) -> dict[str, str]:
        """What sudo made root's is the user's again; PATH stays as sudo left it."""
        found = dict(os.environ)
        if self.who is None:
            return found
        for name in _OF_SUDO:
            found.pop(name, None)
        try:
            entry = pwd.getpwuid(self.who.uid)
        except KeyError:  # the system has no name for this user
            return found
        return found | {
            "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name, "SHELL": entry.pw_shell
        }  # fmt: skip
