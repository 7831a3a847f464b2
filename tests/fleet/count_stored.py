"""Prints how often each batch is in a store. A program: the engine is there once in a process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ingero.fleet.collector.store import Address, Store

rows = Store(Address(Path(sys.argv[1]))).ask(
    "SELECT node, toString(run) AS run, number, count() AS n FROM $node_rounds FINAL"
    " GROUP BY node, run, number"
)
print(json.dumps([[row["node"], row["run"], row["number"], row["n"]] for row in rows]))
