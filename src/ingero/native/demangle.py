"""C++ names as people write them.

Many at a time: each call starts a child, because what the demangler is given comes from
traced processes (see _demangle.c). Names it does not know, or does not survive, stay as
they are, and so does every name where the C++ runtime is not installed. All together take no longer than a
reader may take that waits for something (agent/patience.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ingero.native import _shim
from ingero.units import visible

MAX_NAME_BYTES = 4096
BATCH = 1024
WITHIN_S = 0.8  # usual names take a thousandth of that
MAX_CHILDREN = 8  # a batch with more names than these that kill one is not worth it


def demangle(names: Sequence[bytes]) -> list[str]:
    """A text for each name, in order."""
    texts = [visible(name[:MAX_NAME_BYTES].decode("utf-8", "replace")) for name in names]
    until = time.monotonic() + WITHIN_S
    mangled = [at for at, name in enumerate(names) if _is_mangled(name)]
    for start in range(0, len(mangled), BATCH):
        _demangle_batch(names, mangled[start : start + BATCH], texts, until)
    return texts


def _is_mangled(name: bytes) -> bool:
    return name.startswith(b"_Z") and len(name) < MAX_NAME_BYTES and b"\0" not in name


def _demangle_batch(names: Sequence[bytes], rows: list[int], texts: list[str], until: float) -> None:
    for _ in range(MAX_CHILDREN):
        left_ms = int(1000 * (until - time.monotonic()))
        if not rows or left_ms <= 0:
            return
        made = _shim.demangle(b"".join(names[row] + b"\0" for row in rows), left_ms).split(b"\0")[:-1]
        for row, text in zip(rows, made, strict=False):
            if text:
                texts[row] = visible(text.decode("utf-8", "replace"))
        rows = rows[len(made) + 1 :]  # behind the one that the child ended at
