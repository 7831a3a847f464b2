"""Words on the console of a virtual machine: all that comes out of it. INGERO_TELL names the file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

MARK = "KERNELS "


def tell(**what: Any) -> None:
    """For tools/kernels, which reads it."""
    _print(f"{MARK}{json.dumps(what)}")


def step(text: str) -> None:
    """For people: where it hangs is after the last of these. The seconds are since the kernel began."""
    _print(f"at {time.monotonic():.1f} s: {text}")


def _print(line: str) -> None:
    path = os.environ.get("INGERO_TELL")
    if path:
        with Path(path).open("w") as file:
            file.write(f"\n{line}\n")
