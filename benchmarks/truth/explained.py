"""`ingero explain --json` on a recording, as a script calls it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from benchmarks import jobs

FINDINGS_EXIST = 3


def explain(db: Path) -> dict[str, Any]:
    """The report; a RuntimeError where none came."""
    done = subprocess.run(
        [*jobs.INGERO, "explain", "--json", "-d", str(db)],
        capture_output=True,
        text=True,
        timeout=120,
        env=jobs.environment(db.parent),
        check=False,
    )
    if done.returncode not in (0, FINDINGS_EXIST):
        raise RuntimeError(f"explain failed with {done.returncode}: {done.stderr.strip()[-300:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def there_is_explain() -> bool:
    done = subprocess.run([*jobs.INGERO, "explain", "--help"], capture_output=True, check=False)
    return done.returncode == 0
