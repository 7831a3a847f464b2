"""What is accounted is right wherever a program is interrupted: the probes' own code, step by step."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="single steps are made with x86's trap flag")
def test_a_calls_buckets_sum_to_its_duration_wherever_it_is_preempted(tmp_path: Path) -> None:
    program = tmp_path / "preempted"
    source = Path(__file__).with_name("preempted.c")
    words = ["cc", "-O2", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-I", str(ROOT / "probes")]
    subprocess.run([*words, str(source), "-o", str(program)], check=True)
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout
    cases, _, _, instructions, _ = ran.stdout.split()
    assert int(cases) > 2 * int(instructions) > 100
