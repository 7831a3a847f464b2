"""For a job to say what it is doing: `annotate(step=120)` and the recording knows.

Fire and forget, one datagram of a few microseconds: nothing here waits, raises for an
agent that is away, hung or full, or imports more than a socket. What could not be
sent is counted and told with the next message. The job's clock goes with it, so that
an agent that reads late does not move the step.
"""

from __future__ import annotations

import os
import socket
import time

DIRECTORY = "/run/ingero"
NAME = "annotate.sock"
OWN, CALLER = 0, -1  # whose labels: the sender's own, or of the job that called the sender
MAX_BYTES = 4096


def socket_path() -> str:
    return f"{os.environ.get('INGERO_RUN_DIR') or DIRECTORY}/{NAME}"


def message(labels: dict[str, object], pid: int = OWN, unsent: int = 0) -> bytes:
    """`ingero1`, when (CLOCK_MONOTONIC), whose, how many were not sent; then a label a line."""
    lines = [f"ingero1 {time.monotonic_ns()} {pid} {unsent}"]
    lines += [f"{key}={' '.join(str(value).splitlines())}" for key, value in labels.items()]
    return "\n".join(lines).encode("utf-8", "replace")


class Annotator:
    """Sends to whichever agent runs now: it may come, go and come again."""

    __slots__ = ("_given", "_path", "_socket", "unsent")

    def __init__(self, path: str | None = None) -> None:
        self._given, self._path = path, path or socket_path()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.unsent = 0  # since the last one that was sent

    def __del__(self) -> None:
        self._socket.close()

    def __reduce__(self) -> tuple[type[Annotator], tuple[str | None]]:
        """Code that is sent to workers takes it along (Ray does): there it is one of their own."""
        return Annotator, (self._given,)

    def __call__(self, **labels: object) -> bool:
        """Whether an agent has it. A label holds until its next value; an empty one ends it."""
        try:
            self._socket.sendto(message(labels, OWN, self.unsent), self._path)
        except BlockingIOError:  # the agent is behind: it shall know what it missed
            self.unsent += 1
            return False
        except OSError:  # there is none
            return False
        self.unsent = 0
        return True


annotate = Annotator()
