"""Works for a while, rests for a while, as services do.

burst.py BUSY_MS REST_MS
"""

from __future__ import annotations

import random
import sys
import time

from work import compute


def main() -> None:
    busy_ms, rest_ms = float(sys.argv[1]), float(sys.argv[2])
    while True:
        compute(busy_ms * random.uniform(0.7, 1.3))
        time.sleep(rest_ms * random.uniform(0.7, 1.3) / 1e3)


if __name__ == "__main__":
    main()
