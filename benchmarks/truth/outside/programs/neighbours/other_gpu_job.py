"""Somebody's notebook on the same device: matrices multiplied without end."""

from __future__ import annotations

import sys
from pathlib import Path

from torchlet import Device


def main() -> None:
    if len(sys.argv) > 1:
        Path("/proc/self/comm").write_text(sys.argv[1])
    device = Device()
    while True:
        for _ in range(8):
            device.launch(2500)
        device.synchronize()


if __name__ == "__main__":
    main()
