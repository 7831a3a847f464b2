"""Takes lines from standard input and ships them, some at a time. `reader.py FOLDER NAME`"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from runbook import Run


def main() -> None:
    run = Run(sys.argv[1])
    Path("/proc/self/comm").write_text(sys.argv[2])
    while os.read(0, 4096):
        if run.get("ship_s"):
            time.sleep(run["ship_s"])


if __name__ == "__main__":
    main()
