"""Every fix of every detector: a shell takes it, and it does nothing to anybody it is not about.

The fixes are those of the stories that the detectors' own tests tell.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingero import detectors
from ingero.detectors import ALL
from ingero.model.finding import Finding, Fix
from ingero.model.gpus import HW_SLOWDOWN
from tests.facts import JOB, MS, Story
from tests.unit.detectors.test_cpu_contention import HOG, LOST, job
from tests.unit.detectors.test_gpu_throttled import hot

# Tools that would change something, or that are not everywhere: they only note what they were called with.
STAND_INS = [
    *("taskset", "renice", "kubectl", "docker", "podman", "nerdctl", "crictl", "systemctl", "crontab"),
    *("nvidia-smi", "nvidia-cuda-mps-control", "dcgmi", "compute-sanitizer", "py-spy", "lspci", "dmesg"),
    *("ss", "ip", "ingero", "python", "python3"),
]
HARMLESS = ["bash", "ls", "cat", "grep", "ps", "xargs", "head"]
OF_SEVERAL_NODES = ("hang_across", "late_ranks", "slow_node")  # told of merged recordings: tests of their own
FOUND = 424242  # whoever has the name that is asked for
PGREP = f'#!/bin/sh\necho "pgrep $*" >> "$NOTES"\necho {FOUND}\n'
NOTE = '#!/bin/sh\necho "${0##*/} $*" >> "$NOTES"\n'
AS_ROOT = '#!/bin/sh\nexec "$@"\n'


@pytest.fixture(scope="module")
def told() -> dict[str, list[Finding]]:
    """What the detectors' own tests find, by kind."""
    found: dict[str, list[Finding]] = {}
    with pytest.MonkeyPatch.context() as patch:
        honest = Story.findings

        def findings(story: Story, *given: object, **more: object) -> list[Finding]:
            answer = honest(story, *given, **more)  # type: ignore[arg-type]
            for each in answer:
                found.setdefault(each.kind, []).append(each)
            return answer

        patch.setattr(Story, "findings", findings)
        for test in (*_stories(), *MORE):
            test()
    return found


def _a_quiet_machine_and_too_many_threads() -> None:
    assert job(LOST, gap=LOST).culprit(JOB, "python3", 590).findings()


def _nobody_is_left() -> None:
    story = job(LOST, gap=LOST).culprit(HOG, "a name with blanks", 590)
    assert (
        story.process(HOG, "a name with blanks", end_ns=9 * MS).process(JOB, "python3", end_ns=9).findings()
    )


def _a_disk_and_a_job_that_ended() -> None:
    story = job({"disk_wait": 600.0}, gap={"disk_wait": 600.0})
    assert story.process(JOB, "python3", end_ns=9 * MS).findings()


def _the_hardware_slows_the_card_down() -> None:
    assert hot(reasons=HW_SLOWDOWN).findings()


def _stories() -> Iterator[Callable[[], None]]:
    for detector in ALL:
        if not detector.unwatched:
            module = importlib.import_module(f"tests.unit.detectors.test_{detector.name.replace('-', '_')}")
            for name, test in inspect.getmembers(module, inspect.isfunction):
                if name.startswith("test_") and not inspect.signature(test).parameters:
                    yield test


# Branches that no story of a detector's own takes.
MORE = (
    _a_quiet_machine_and_too_many_threads,
    _nobody_is_left,
    _a_disk_and_a_job_that_ended,
    _the_hardware_slows_the_card_down,
)


def fixes(told: dict[str, list[Finding]]) -> list[tuple[str, Finding, Fix]]:
    every = [(kind, each, fix) for kind, found in told.items() for each in found for fix in each.fix]
    return list(
        {(kind, fix.command, fix.code, fix.if_ended): (kind, each, fix) for kind, each, fix in every}.values()
    )


def commands(told: dict[str, list[Finding]]) -> list[str]:
    found = {text for _, _, fix in fixes(told) for text in (fix.command, fix.if_ended) if text}
    return sorted(found)


def test_every_kind_that_is_looked_for_was_told_with_a_fix(told: dict[str, list[Finding]]) -> None:
    looked_for = {each.name for each in ALL if not each.unwatched}
    assert {kind for kind, _, _ in fixes(told)} == looked_for
    assert len(commands(told)) > 30


def written() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Every fix that stands in a detector, as a pattern of its text."""
    for module in sorted(Path(detectors.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("Fix", "commands.look")
                and node.args
            ):
                text = node.args[0 if ast.unparse(node.func) == "Fix" else 2]
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                words = [part.value if isinstance(part, ast.Constant) else None for part in parts]
                if any(words):
                    pattern = "".join(".*" if each is None else re.escape(str(each)) for each in words)
                    yield f"{module.stem}:{node.lineno}", re.compile(pattern)


def test_every_fix_that_is_written_was_told(told: dict[str, list[Finding]]) -> None:
    texts = [fix.text for found in told.values() for each in found for fix in each.fix]
    untold = [where for where, text in written() if not any(text.match(each) for each in texts)]
    assert not [each for each in untold if each.partition(":")[0] not in OF_SEVERAL_NODES]


def test_a_shell_takes_every_command(told: dict[str, list[Finding]]) -> None:
    for command in commands(told):
        done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)


def test_every_command_runs_and_touches_only_whom_it_is_about(
    told: dict[str, list[Finding]], tmp_path: Path
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in STAND_INS:
        _write(tools / name, NOTE)
    _write(tools / "sudo", AS_ROOT)
    _write(tools / "pgrep", PGREP)
    for name in HARMLESS:
        (tools / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    for _, finding, fix in fixes(told):
        for command in filter(None, (fix.command, fix.if_ended)):
            done, called = _run(command, tools, tmp_path)
            assert done.returncode not in (126, 127), (
                command,
                done.stderr,
            )  # it cannot be run
            assert "not found" not in done.stderr, (command, done.stderr)
            for pid in _changed(called):
                assert pid in (*fix.pids, FOUND), (command, finding.title)
            for name in re.findall(r"^pgrep -x (.*)$", called, re.M):
                assert name in {who.comm for cause in finding.causes for who in cause.who}, command


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _run(command: str, tools: Path, home: Path) -> tuple[subprocess.CompletedProcess[str], str]:
    notes = home / "notes"
    notes.write_text("")
    surroundings = {
        "PATH": str(tools),
        "HOME": str(home),
        "NOTES": str(notes),
        "LANG": "C",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        env=surroundings,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return done, notes.read_text()


def _changed(called: str) -> set[int]:
    """Whom taskset or renice were to change."""
    found: set[int] = set()
    for line in called.splitlines():
        if moved := re.match(r"taskset -acp \S+ (\d+)$", line):
            found.add(int(moved[1]))
        elif reniced := re.match(r"renice -n 19 -p ([\d ]+)$", line):
            found |= set(map(int, reniced[1].split()))
        else:
            assert not line.startswith(("renice", "taskset -a")), line
    return found


def test_a_process_that_ended_is_never_named_by_its_number() -> None:
    story = job(LOST, gap=LOST).culprit(HOG, "stress", 590)
    story.process(HOG, "stress", end_ns=9 * MS).process(
        JOB, "python3", cmdline="python3 train.py", end_ns=9 * MS
    )
    (finding,) = story.findings()
    said = "\n".join(fix.command or "" for fix in finding.fix)
    assert "pgrep -x stress | xargs -r -n 1 taskset -acp 7" in said
    assert "taskset -c 0-6 python3 train.py" in said
    assert not re.search(rf"\b({HOG}|{JOB})\b", said)


def test_a_name_that_others_have_too_moves_nobody() -> None:
    """Half of the machine is called python3: only those who took the cores are meant."""
    story = job(LOST, gap=LOST).process(77, "python3")
    for pid in range(HOG, HOG + 6):
        story.culprit(pid, "python3", 100)
    (finding,) = story.findings()
    assert all("pgrep" not in (fix.command or "") for fix in finding.fix)
    assert {pid for fix in finding.fix for pid in fix.pids} == {JOB, *range(HOG, HOG + 6)}


def test_of_a_mixed_crowd_the_one_in_the_title_is_looked_for_again_by_name() -> None:
    story = job(LOST, gap=LOST)
    for pid in range(HOG, HOG + 4):
        story.culprit(pid, "stress", 120)
    story.culprit(HOG + 9, "python", 60)
    (finding,) = story.findings()
    apart = finding.fix[0]
    assert str(HOG + 9) in (apart.command or "")
    assert apart.if_ended == "pgrep -x stress | xargs -r -n 1 taskset -acp 7"
