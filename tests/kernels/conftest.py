"""Runs on the kernel it finds itself on: this machine's, or that of a virtual machine (`make test-kernels`).

There the console is all that comes out, so each result is a line on it: INGERO_TELL names the file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import missing_for_ebpf, require

MARK = "KERNELS "


def tell(**what: Any) -> None:
    path = os.environ.get("INGERO_TELL")
    if path:
        with Path(path).open("w") as file:
            file.write(f"\n{MARK}{json.dumps(what)}\n")


def pytest_runtest_setup(item: pytest.Item) -> None:
    require("kernels", list(missing_for_ebpf()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        why = "" if report.outcome == "passed" else str(report.longrepr)[-1500:]
        tell(
            test=report.nodeid.partition("::")[2],
            outcome=report.outcome,
            why=why,
            facts=dict(report.user_properties),
        )
