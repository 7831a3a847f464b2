"""The stack of a call, against what other tools read of the process while the call lasts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ingero.scenarios import cuda
from tests.ebpf.test_frames import python_part, stacks_of, until_readable
from tests.ebpf.test_gil import pythons
from tests.ebpf.tracing import WORKLOADS, Tracer, workload
from tests.pythons import kind_of

pytestmark = pytest.mark.timeout(120)
LONG = {**os.environ, "INGERO_STUB_ALLOC_US": "4000000"}
BIN = Path(sys.executable).parent
Stack = list[tuple[str, int]]


def py_spy(pid: int) -> Stack:
    done = subprocess.run(
        [BIN / "py-spy", "dump", "--json", "--pid", str(pid)], capture_output=True, text=True, check=True
    )
    (thread,) = json.loads(done.stdout)
    return [(frame["name"], frame["line"]) for frame in thread["frames"]]


def pystack(pid: int) -> Stack:
    done = subprocess.run([BIN / "pystack", "remote", str(pid)], capture_output=True, text=True, check=True)
    found = re.findall(r'\(Python\) File "[^"]*", line (\d+), in (\S+)', done.stdout)
    return [(name, int(line)) for line, name in reversed(found)]


def one_and_long_the_others() -> list[Any]:
    """test_frames.py has all of them, against what the programs themselves say."""
    return [pytest.param(each, marks=pytest.mark.long) if at else each for at, each in enumerate(pythons())]


@pytest.mark.parametrize("python", one_and_long_the_others())
def test_other_tools_see_the_same_functions_and_lines(tracer: Tracer, python: str) -> None:
    with workload(python, str(WORKLOADS / "held.py"), str(cuda.stub_dir()), env=LONG) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        job.start()
        time.sleep(0.5)
        seen = {"pystack": pystack(job.pid)}
        if not kind_of(python).free_threaded:  # which py-spy 0.4 cannot read
            seen["py-spy"] = py_spy(job.pid)
        job.wait_done()
        ((_, stack),) = stacks_of(tracer, job.pid, "cudaMalloc")
    # They give plain names where we give qualified ones.
    ours = [(function.rpartition(".")[2], line) for function, _, line in python_part(stack)]
    assert len(ours) > 10
    for tool, theirs in seen.items():
        assert [(name.rpartition(".")[2], line) for name, line in theirs] == ours, tool
