"""`check`: every line stands alone and says what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ingero.discover import host, host_checks
from ingero.discover.libraries import LibraryFinder
from ingero.model.check_line import Check

from .conftest import LOAD, Build, Start

NAMES = {
    "kernel",
    "BTF",
    "tracefs",
    "privileges",
    "process numbers",
    "lockdown",
    "ptrace",
    "NVIDIA driver",
    "GPUs",
    "CUDA libraries",
    "Python",
    "containers",
    "free space",
}


def test_this_machine_gets_every_line_and_advice_where_it_is_needed(tmp_path: Path) -> None:
    found = host_checks.run_checks(tmp_path)
    assert {each.name for each in found} >= NAMES
    assert all(each.value for each in found)
    assert all(each.advice for each in found if each.status != "ok")
    assert not any("could not be checked" in each.value for each in found)


def test_a_check_that_breaks_becomes_a_warning_and_the_rest_goes_on(tmp_path: Path) -> None:
    def broken() -> Check:
        raise ZeroDivisionError("oops")

    more = [("probe cost", broken), ("attach shapes", lambda: Check("attach shapes", "ok", "session"))]
    found = {each.name: each for each in host_checks.run_checks(tmp_path, more)}
    assert found["probe cost"].status == "warning"
    assert "oops" in found["probe cost"].value
    assert found["attach shapes"].value == "session"
    assert set(found) >= NAMES


def test_a_library_is_listed_with_the_processes_that_map_it(
    start: Start, build: Build, tmp_path: Path
) -> None:
    path = build(tmp_path / "libcudart.so.13", "int cudaMalloc(void) { return 0; }")
    children = [start(sys.executable, "-c", LOAD, str(path)) for _ in range(2)]
    (line,) = (each for each in host_checks.cuda_libraries(LibraryFinder()) if str(path) in each.value)
    assert line.status == "ok"
    assert all(str(child.pid) in line.value for child in children)
    pythons = [each.value for each in host_checks.python_interpreters(LibraryFinder())]
    assert all(any(f"process {child.pid}:" in value for value in pythons) for child in children)


def test_missing_privileges_name_the_capability_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "effective_capabilities", lambda: 0)
    found = host_checks.privileges()
    assert found.status == "failed"
    assert "CAP_BPF" in found.value
    assert "sudo ingero trace" in found.advice
    assert "docs/deploy.md" in found.advice


def test_nobody_is_told_to_give_rights_to_an_interpreter_that_everybody_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "effective_capabilities", lambda: 0)
    found = host_checks.privileges()
    assert "setcap" not in found.advice
    assert str(Path(sys.executable).resolve()) not in found.advice


def test_a_container_that_counts_its_own_processes_is_no_place_to_trace_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert host.counts_own_processes("pid:[4026532177]")
    assert not host.counts_own_processes("pid:[4026531836]")
    monkeypatch.setattr(host, "counts_own_processes", lambda: True)
    found = host_checks.process_numbers()
    assert found.status == "failed"
    assert "--pid host" in found.advice


@pytest.mark.parametrize("state, status", [("confidentiality", "failed"), ("integrity", "ok"), (None, "ok")])
def test_only_full_lockdown_stands_in_the_way(
    monkeypatch: pytest.MonkeyPatch, state: str | None, status: str
) -> None:
    monkeypatch.setattr(host, "lockdown", lambda: state)
    assert host_checks.lockdown().status == status


@pytest.mark.parametrize(
    "scope, missing, status", [(0, True, "ok"), (1, False, "ok"), (1, True, "warning"), (3, False, "warning")]
)
def test_ptrace_is_judged_by_what_this_process_may_do(
    monkeypatch: pytest.MonkeyPatch, scope: int, missing: bool, status: str
) -> None:
    monkeypatch.setattr(host, "kernel_number", lambda name: scope)
    monkeypatch.setattr(host, "missing_capabilities", lambda: ["CAP_SYS_PTRACE"] if missing else [])
    assert host_checks.ptrace().status == status


def test_an_old_kernel_no_btf_and_a_full_disk_are_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host, "kernel_release", lambda: "5.4.0-generic")
    monkeypatch.setattr(host, "has_btf", lambda: False)
    monkeypatch.setattr(host, "free_bytes", lambda path: 1000)
    assert host_checks.kernel().status == "warning"
    assert host_checks.btf().status == "failed"
    assert host_checks.free_space(tmp_path).status == "warning"


def test_an_interpreter_says_whether_its_frames_can_be_read(
    start: Start, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = """
#include <stdio.h>
long _PyRuntime[512] = {%s};
const unsigned long Py_Version = 0x030c01f0;
int main(void) { puts("1"); fflush(stdout); return getchar(); }
"""
    good = start()
    empty = start(str(build(tmp_path / "empty", source % "1", "-no-shared")))
    bad = start(str(build(tmp_path / "bad", source % ("123456789, " * 512), "-no-shared")))
    pids = [good.pid, empty.pid, bad.pid]
    monkeypatch.setattr(host_checks.processes, "list_pids", lambda: pids)
    lines = list(host_checks.python_interpreters(LibraryFinder()))
    assert [each.status for each in lines] == ["ok", "ok", "warning"]
    assert "frames can be read, thread state by pthread key" in lines[0].value
    assert "frames cannot be read yet" in lines[1].value
    assert "frames cannot be read: " in lines[2].value
