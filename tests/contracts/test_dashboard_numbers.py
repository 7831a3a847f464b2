"""The dashboard and the terminal show the same number to the same digit."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from ingero import units

FORMAT = Path(__file__).parents[2] / "frontend" / "src" / "format.js"
DRAWN = random.Random(1)
VALUES = [
    0, 1, 100.5, 101.5, 999.4, 999.5, 999.96, 1000, 1023, 1024, 119e9, 120e9, 121e9, 3 * 86400e9,
    *(n / 4 for n in range(4000)),
    *(DRAWN.random() * 10 ** DRAWN.randint(0, 15) for _ in range(2000)),
]  # fmt: skip
SHARES = [0, 1e-6, 0.0009, 0.001, 0.99949, 0.9995, 1, 1.5, *(n / 400 for n in range(400))]
SHARES += [DRAWN.random() for _ in range(2000)]


@pytest.mark.parametrize(
    ("shown", "said", "values"),
    [
        ("duration", units.format_ns, VALUES),
        ("bytes", units.format_bytes, VALUES),
        ("count", units.format_count, VALUES),
        ("share", units.format_share, SHARES),
    ],
)
def test_numbers_are_written_alike(shown: str, said: object, values: list[float]) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    script = (
        f"const format = await import({json.dumps(FORMAT.as_uri())});"
        f"console.log(JSON.stringify({json.dumps(values)}.map((value) => format.{shown}(value))));"
    )
    done = subprocess.run(
        [node, "--input-type=module"], input=script, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [said(value) for value in values]  # type: ignore[operator]
