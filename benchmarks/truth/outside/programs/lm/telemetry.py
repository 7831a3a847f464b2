"""What a run says about itself."""

from __future__ import annotations

import sys
from typing import Any


class Telemetry:
    def __init__(self) -> None:
        self._notes: list[dict[str, Any]] = []

    def note(self, what: dict[str, Any]) -> None:
        self._notes = [*self._notes[-20:], what]

    def table(self, step: int, rows: int) -> None:
        lines = [
            f"step {step} layer {row:4d} grad {1 / (row + 1):.6f} weight {row * 0.37:.6f}"
            for row in range(rows)
        ]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    def tensors(self, count: int) -> dict[str, Any]:
        return {
            f"layer.{number}": {"mean": number * 0.1, "std": 1 / (number + 1), "norm": number**0.5}
            for number in range(count)
        }
