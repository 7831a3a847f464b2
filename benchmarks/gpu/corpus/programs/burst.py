"""Somebody else's job: all of the card for MS milliseconds, then nothing for PAUSE; 0: always.

burst.py MS PAUSE
"""

from __future__ import annotations

import os
import sys
import time

import torch

ms, pause = float(sys.argv[1]), float(sys.argv[2])
values = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print(f"ready {os.getpid()}", flush=True)
sys.stdin.readline()
while True:
    until = time.monotonic() + ms / 1e3
    while time.monotonic() < until or not pause:
        for _ in range(4):
            values @ values
        torch.cuda.synchronize()
    time.sleep(pause / 1e3)
