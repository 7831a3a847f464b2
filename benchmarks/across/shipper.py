"""Takes a core for some milliseconds, again and again, and hardly ever leaves it: log-shipper CORE MS."""

import contextlib
import os
import sys
import time

PAUSE_S = 0.0006


def main() -> None:
    core, ms = int(sys.argv[1]), float(sys.argv[2])
    os.sched_setaffinity(0, {core})
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    parent = os.getppid()
    while os.getppid() == parent:  # whoever started it may have been killed: nobody else would end it
        until = time.monotonic_ns() + int(ms * 1e6)
        while time.monotonic_ns() < until:
            pass
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
