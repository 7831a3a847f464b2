"""`ingero` on a machine whose wall clock is ahead by so much, and drifts.

    python -m benchmarks.across.shifted AHEAD_NS DRIFT_PPM trace --node gpu-node-02 -- ...

Agents of one machine share its clock. Here only what the program itself reads is shifted: a
recording then has the times another machine would have given it.
"""

from __future__ import annotations

import sys
import time


def shift(ahead_ns: int, drift_ppm: float) -> None:
    """From here on, in this process."""
    real, begun_ns = time.time_ns, time.monotonic_ns()

    def shifted() -> int:
        return real() + ahead_ns + int((time.monotonic_ns() - begun_ns) * drift_ppm / 1e6)

    time.time_ns = shifted


def main() -> int:
    shift(int(sys.argv[1]), float(sys.argv[2]))
    from ingero.serve.cli.main import main as ingero

    return ingero(sys.argv[3:]) or 0


if __name__ == "__main__":
    sys.exit(main())
