"""Starts a command that is traced from its first call.

It waits behind a pipe until the probes are on; then it is what it would have been.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from ingero.errors import TargetError

# A shell that waits for a line, then becomes the command.
WAIT_THEN_RUN = 'read -r _ <&"$0"; eval "exec $0<&-"; exec "$@"'


class Command:
    """The command, held back until release()."""

    def __init__(self, words: tuple[str, ...], stdout_to_stderr: bool = False) -> None:
        if shutil.which(words[0]) is None:
            raise TargetError(
                f"cannot start {words[0]}: no such command",
                hint="Give its path, or check PATH (sudo changes it).",
            )
        reading, self._gate = os.pipe()
        try:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", WAIT_THEN_RUN, str(reading), *words],
                pass_fds=[reading],
                stdout=sys.stderr.fileno() if stdout_to_stderr else None,
            )
        finally:
            os.close(reading)

    @property
    def pid(self) -> int:
        return self._child.pid

    def release(self) -> None:
        os.write(self._gate, b"\n")
        os.close(self._gate)

    def exit_code(self) -> int | None:
        """None while it runs; as a shell would say it: 128 + signal."""
        code = self._child.poll()
        return None if code is None else code if code >= 0 else 128 - code

    def stop(self) -> int:
        """Tracing was told to end: the command ends with it."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(10)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        code = self.exit_code()
        return code if code is not None else 1
