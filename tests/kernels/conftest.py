"""Runs on the kernel it finds itself on: this machine's, or that of a virtual machine (`make test-kernels`).

Each result is a line on the console of that machine.
"""

from __future__ import annotations

import pytest

from tests.conftest import missing_for_ebpf, require
from tests.kernels.console import step, tell


def pytest_runtest_logstart(nodeid: str) -> None:
    step(nodeid.partition("::")[2])


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
