"""A job that says a label a given number of times a second and times each call.

    python send_labels.py RATE

Prints `ready PID`; for each line SECONDS it reads it says labels for that long and
answers with one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time

from ingero.annotate import annotate


def say(rate: int, seconds: float) -> dict[str, float]:
    took_ns: list[int] = []
    taken = 0
    begin = due = time.perf_counter()
    while due < begin + seconds:
        while time.perf_counter() < due:
            time.sleep(max(0.0, due - time.perf_counter()))
        before = time.perf_counter_ns()
        taken += annotate(step=len(took_ns))
        took_ns.append(time.perf_counter_ns() - before)
        due += 1 / rate
    took_ns.sort()
    at = len(took_ns)
    return {
        "said": at, "taken": taken, "p50_ns": took_ns[at // 2], "p99_ns": took_ns[at * 99 // 100],
        "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def main() -> None:
    print("ready", os.getpid(), flush=True)
    for line in sys.stdin:
        print(json.dumps(say(int(sys.argv[1]), float(line))), flush=True)


if __name__ == "__main__":
    main()
