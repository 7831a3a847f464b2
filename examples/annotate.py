"""Labels from a plain loop, without installing anything in the job: copy the function.

    from annotate import annotate
    for step, batch in enumerate(loader):
        annotate(step=step)
        train(batch)

A label holds for this process and those it starts until its next value. One datagram of
a few microseconds: nothing waits, and nothing happens where no agent runs. Where ingero
is installed `from ingero.annotate import annotate` is the same, and counts what was lost.
"""

import os
import socket
import time


def annotate(**labels: object) -> None:
    lines = [f"ingero1 {time.monotonic_ns()} 0 0", *(f"{key}={value}" for key, value in labels.items())]
    path = os.environ.get("INGERO_RUN_DIR", "/run/ingero") + "/annotate.sock"
    try:  # a socket for each: one that is kept cannot be sent to workers with the code that uses it
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, path)
    except OSError:  # no agent, or one that is behind
        pass
