"""Processes whose Python frames lie: cut, circular, huge or changing while they are walked.

None of them gets a line that is not its own; what cannot be told is shown as such and
counted; the process notices nothing, and its sound stacks are told as ever.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingero.discover.python_offsets import OFFSETS
from ingero.model.stack import ResolvedStack
from ingero.scenarios import cuda
from tests.ebpf.test_frames import python_part, stacks_of, until_readable
from tests.ebpf.test_gil import pythons
from tests.ebpf.tracing import WORKLOADS, Tracer, workload
from tests.pythons import kind_of

pytestmark = pytest.mark.timeout(120)
VERSIONS = {f"3.{minor}{'t' if free else ''}": (minor, free) for minor, free in OFFSETS}
FILE = "/job/train.py"
WITHIN, BETWEEN, MODULE = ["within", FILE, 15], ["between", FILE, 25], ["<module>", FILE, 35]
SOUND = [WITHIN, BETWEEN, MODULE]
UNKNOWN = ["[unknown]", None, None]
WITHOUT_LINE = ["within", FILE, None]
KEPT = 128  # frames of a deep stack

NOTHING: list[Any] = []
CUT = [WITHIN]
NAMELESS = [UNKNOWN, BETWEEN, MODULE]
LINELESS = [WITHOUT_LINE, BETWEEN, MODULE]
# What may be shown; where memory decides (what lies where a frame was to be), one of several.
SHOWN: dict[str, list[list[Any]]] = {
    "sound": [SOUND],
    "own_caller": [NOTHING],
    "circle_of_two": [NOTHING],
    "circle_behind": [NOTHING],
    "circle_of_a_thousand": [NOTHING],
    "circle_of_fifty_thousand": [[WITHIN] * KEPT],
    "a_million_deep": [[WITHIN] * KEPT],
    "caller_unmapped": [CUT],
    "caller_not_canonical": [CUT],
    "caller_in_the_kernel": [CUT],
    "caller_at_the_end": [CUT],
    "caller_at_one": [CUT],
    "caller_is_a_text": [CUT, NOTHING],
    "no_caller": [CUT],
    "caller_half_mapped": [CUT],
    "code_unmapped": [NOTHING],
    "code_missing": [NOTHING],
    "code_in_the_kernel": [NOTHING],
    "code_is_a_text": [NOTHING],
    "code_of_a_caller_is_noise": [CUT],
    "name_unmapped": [NAMELESS],
    "name_missing": [NAMELESS],
    "name_is_the_code": [NAMELESS],
    "name_is_noise": [NAMELESS],
    "name_huge": [NAMELESS],
    "name_negative": [NAMELESS],
    "name_of_4_gb": [NAMELESS],
    "file_huge": [NAMELESS],
    "file_missing": [NAMELESS],
    "name_of_width_0": [NAMELESS],
    "name_of_width_3": [NAMELESS],
    "name_of_width_7": [NAMELESS],
    "name_not_compact": [NAMELESS],
    "name_ascii_and_wide": [NAMELESS],
    "lines_unmapped": [LINELESS],
    "lines_missing": [LINELESS],
    "lines_huge": [LINELESS],
    "lines_negative": [LINELESS],
    "lines_empty": [LINELESS],
    "lines_cut_short": [LINELESS],
    "lines_are_a_text": [LINELESS],
    "first_line_negative": [LINELESS],
    "first_line_huge": [LINELESS],
    "instruction_far_away": [NOTHING],
    "instruction_negative": [NOTHING],
    "no_frame": [NOTHING],
    "frame_unmapped": [NOTHING],
    "state_unmapped": [NOTHING],
    "state_missing": [NOTHING],
    "state_freed": [NOTHING],
}
EMPTY_TABLE_IS_ONE_LINE = [["within", FILE, 10], BETWEEN, MODULE]  # 3.9
QUIET = {"sound", "no_caller", "no_frame", "state_unmapped", "state_missing", "state_freed"}
QUIET |= {case for case, shown in SHOWN.items() if LINELESS in shown}

Pretender = Callable[[str], str]


@pytest.fixture(scope="session")
def pretender(compiled: Callable[..., str]) -> Pretender:
    def compile_one(version: str) -> str:
        minor, free_threaded = VERSIONS[version]
        offsets = {**OFFSETS[minor, free_threaded], "minor": minor}
        macros = [f"-D{name.upper()}={value}" for name, value in offsets.items()]
        libraries = ("-pthread", "-L", "STUB", "-l:libcudart.so.12", "-Wl,-rpath,STUB")
        return compiled("hardship/pretender.c", *macros, *libraries, name=f"python{version}")

    return compile_one


def by_bytes(tracer: Tracer, pid: int) -> dict[int, list[ResolvedStack | None]]:
    found: dict[int, list[ResolvedStack | None]] = {}
    for row, stack in stacks_of(tracer, pid, "cudaMalloc"):
        found.setdefault(int(row["bytes"]), []).append(stack)
    return found


def program_of(tracer: Tracer, pid: int) -> int | None:
    """Another number with every program the process executes."""
    return tracer.agent._interpreters._programs.get(pid)


def notes(stack: ResolvedStack) -> list[str]:
    return [frame.function for frame in stack.frames if frame.kind == "note" and "Python" in frame.function]


@pytest.mark.parametrize("version", VERSIONS)
def test_broken_structures_give_no_wrong_line(tracer: Tracer, pretender: Pretender, version: str) -> None:
    tracer.tick()
    before = tracer.losses()
    with workload(pretender(version)) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        cases = job.go()
        found = by_bytes(tracer, job.pid)
        assert job.end() == 0
    lost = {reason: count - before.get(reason, 0) for reason, count in tracer.losses().items()}
    expected = dict(SHOWN)
    if version == "3.9":
        expected["lines_empty"] = [EMPTY_TABLE_IS_ONE_LINE]
    assert {each["case"] for each in cases} == set(expected)
    wrong = {}
    for each in cases:
        (stack,) = found[each["bytes"]]
        if python_part(stack) not in expected[each["case"]]:
            wrong[each["case"]] = python_part(stack)[:4]
        (stack,) = found[each["bytes"] + 1000]
        if python_part(stack) != SOUND:
            wrong["after " + each["case"]] = python_part(stack)[:4]
    assert not wrong
    loud = len(cases) - len(QUIET) - 2  # the two that are only deep are cut, and say so themselves
    counted = lost["stack_corrupt"] + lost["stack_unreadable"] + lost["stack_unknown_frame"]
    assert counted >= loud


def test_what_is_not_shown_is_said(tracer: Tracer, pretender: Pretender) -> None:
    with workload(pretender("3.12")) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        number = {each["case"]: each["bytes"] for each in job.go()}
        found = by_bytes(tracer, job.pid)
    said = {case: notes(stack) for case, at in number.items() for stack in found[at] if stack}
    assert said["sound"] == []
    assert said["caller_unmapped"] == ["[Python frames not readable from here on]"]
    assert said["own_caller"] == ["[Python frames not readable: no chain of frames]"]
    deep = [frame.function for frame in found[number["a_million_deep"]][0].frames]  # type: ignore[union-attr]
    assert any("frames cut" in each for each in deep)
    assert any("deeper frames not read" in each for each in deep)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_chain_that_changes_while_it_is_walked(tracer: Tracer, pretender: Pretender, version: str) -> None:
    with workload(pretender(version), "mutating", "3000") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        job.go()
        found = by_bytes(tracer, job.pid)
        assert job.end() == 0
    (last,) = found[8]
    assert python_part(last) == SOUND
    shown = {tuple(frame) for stack in found[7] if stack for frame in python_part(stack)}
    own = [WITHIN, WITHOUT_LINE, BETWEEN, MODULE, UNKNOWN, ["other", FILE, 45]]
    assert shown <= {tuple(each) for each in own}
    assert ("between", FILE, 25) in shown


def test_another_program_in_the_middle_of_a_walk(tracer: Tracer, pretender: Pretender) -> None:
    with workload(pretender("3.12"), "exec") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        program = program_of(tracer, job.pid)
        job.start()
        assert job.process.stdout is not None
        assert job.process.stdout.readline().split() == ["ready", str(job.pid)]
        tracer.until(lambda: program_of(tracer, job.pid) != program)
        until_readable(tracer, job.pid)
        job.go()
        found = by_bytes(tracer, job.pid)
        assert job.end() == 0
    assert [python_part(stack) for stack in found[10]] == [SOUND]
    assert len(found[9]) > 10
    assert all(python_part(stack) in (SOUND, NOTHING) for stack in found[9])


# --- real interpreters --------------------------------------------------------------------


def offsets_of(python: str) -> dict[str, int]:
    kind = kind_of(python)
    return OFFSETS[kind.minor, kind.free_threaded]


@pytest.mark.parametrize("python", pythons())
def test_an_interpreter_that_breaks_its_own_frames(tracer: Tracer, python: str) -> None:
    program, offsets = str(WORKLOADS / "hardship" / "self_harm.py"), json.dumps(offsets_of(python))
    with workload(python, program, str(cuda.stub_dir()), offsets) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        said = job.go()
        found = by_bytes(tracer, job.pid)
        assert job.end() == 0
    shown = {each["way"]: [python_part(stack) for stack in found[each["bytes"]]] for each in said}
    innermost = {each["way"]: [each["way"], "/job/self.py", each["line"]] for each in said}
    ((_, *callers),) = shown["sound"]
    assert shown["sound"] == [[innermost["sound"], *callers]]
    assert [frame[0] for frame in callers] == ["main", "<module>"]
    assert shown["own_caller"] == [NOTHING]
    for way in ("caller_unmapped", "caller_in_the_kernel", "no_caller"):
        assert shown[way] == [[innermost[way]]]
    # Not to be had at that moment: by the time they are read from outside they may be whole again.
    for way in ("name_huge", "name_negative"):
        assert shown[way] in ([[UNKNOWN, *callers]], [[innermost[way], *callers]])
    way, file, line = innermost["lines_huge"]
    assert shown["lines_huge"] in ([[[way, file, None], *callers]], [[[way, file, line], *callers]])


@pytest.mark.parametrize("python", pythons())
def test_code_objects_made_anew_in_the_same_place(tracer: Tracer, python: str) -> None:
    program = str(WORKLOADS / "hardship" / "used_again.py")
    with workload(python, program, str(cuda.stub_dir()), "240") as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        *said, total = job.go()
        found = by_bytes(tracer, job.pid)
    assert total["places"] < 0.5 * len(said)
    expected = {each["bytes"]: [each["function"], each["file"], each["line"]] for each in said}
    assert {at: python_part(stack)[0] for at, (stack,) in found.items() if at in expected} == expected


@pytest.mark.parametrize("python", pythons())
def test_an_interpreter_that_ends_while_it_is_walked(tracer: Tracer, python: str) -> None:
    program = str(WORKLOADS / "hardship" / "finalising.py")
    with workload(python, program, str(cuda.stub_dir())) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        job.start()
        assert job.process.wait(20) == 0
        found = by_bytes(tracer, job.pid)
        after = [python_part(stack) for _, stack in stacks_of(tracer, job.pid, "cudaFree")]
    assert [frame[0] for frame in python_part(found[10][0])] == ["at_exit"]
    threads = [[frame[0].rpartition(".")[2] for frame in python_part(stack)] for stack in found[9]]
    assert all(each == ["call_on", "run", "_bootstrap_inner", "_bootstrap"] for each in threads)
    assert after == [NOTHING]


def line_of(program: Path, text: str) -> int:
    return program.read_text("utf-8").splitlines().index(text) + 1


@pytest.mark.parametrize("python", pythons())
def test_a_program_executed_by_its_twin_without_randomised_addresses(
    tracer: Tracer, tmp_path: Path, python: str
) -> None:
    """The same process, the same addresses, the same numbers, other code."""
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    text = (WORKLOADS / "hardship" / "twin.py").read_text("utf-8")
    one.write_text(text, "utf-8")
    two.write_text(text.replace("aaaa", "bbbb").replace("4001", "4002"), "utf-8")
    call, module = (
        line_of(one, "    return allocate(P, ctypes.c_size_t(size))"),
        line_of(one, "aaaa(function, 4001)"),
    )
    words = (python, "-S", str(one), str(cuda.stub_dir()), str(two))
    unseeded = {**os.environ, "PYTHONHASHSEED": "0"}
    with workload(*words, before=("setarch", "-R"), env=unseeded) as job:
        tracer.until_target(job.pid)
        until_readable(tracer, job.pid)
        program = program_of(tracer, job.pid)
        job.start()
        assert job.process.stdout is not None
        assert job.process.stdout.readline().split() == ["ready", str(job.pid)]
        tracer.until(lambda: program_of(tracer, job.pid) != program)
        until_readable(tracer, job.pid)
        tracer.until_target(job.pid)
        job.go()
        found = by_bytes(tracer, job.pid)
    assert python_part(found[4001][0]) == [["aaaa", str(one), call], ["<module>", str(one), module]]
    assert python_part(found[4002][0]) == [["bbbb", str(two), call], ["<module>", str(two), module]]
