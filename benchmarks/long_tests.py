"""What `make test-long` came to, and when: a line of docs/reliability.md.

python -m benchmarks.long_tests build/test-long.xml
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from datetime import datetime
from pathlib import Path

from benchmarks import reliability


def section(report: str) -> str:
    """Of the report that pytest wrote."""
    suite = next(ElementTree.fromstring(report).iter("testsuite"))
    tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
    failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
    day = datetime.fromisoformat(suite.get("timestamp", "")).date().isoformat()
    minutes = float(suite.get("time", 0)) / 60
    skips = f", {skipped} skipped" if skipped else ""
    return f"Last run on {day}: {tests - skipped} tests in {minutes:.0f} minutes, {failed} failed{skips}."


if __name__ == "__main__":
    text = section(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(text)
    reliability.write("test-long", text)
