"""What one traced call costs here, for each attach shape. `make bench` runs it; needs root.

The function called does nothing, so the numbers are the probe's alone. They say how
shapes compare on this machine, not what tracing costs a job.
"""

from __future__ import annotations

import os

from ingero.attach import cost, shapes
from ingero.errors import IngeroError

ROUNDS = 3


def best_ns(shape: str) -> float:
    os.environ["INGERO_ATTACH"] = shape
    return min(cost.measure().ns for _ in range(ROUNDS))


def main() -> int:
    print("| attach shape | ns per traced call |\n|---|---|")
    measured = 0
    for kind in shapes.SHAPES:
        try:
            ns = best_ns(kind.name)
        except IngeroError as error:
            print(f"| {kind.name} | {error.message} |")
        else:
            measured += 1
            print(f"| {kind.name} | {ns:,.0f} |")
    return 0 if measured else 1


if __name__ == "__main__":
    raise SystemExit(main())
