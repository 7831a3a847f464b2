"""Every fix of every detector: a shell takes it, and it does nothing to anybody it is not about.

The fixes are those of the stories that the detectors' own tests tell.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import pytest

from ingero import detectors
from ingero.correlate.timeline import Timeline
from ingero.detectors import ALL, Diagnosis
from ingero.detectors.across import Across, judge_across
from ingero.detectors.commands import ended
from ingero.model.clocks import Clocks
from ingero.model.facts import Facts, ProcessFact
from ingero.model.finding import Finding, Fix
from ingero.model.gpus import HW_SLOWDOWN
from ingero.serve.cli.main import ingero
from tests.facts import JOB, MS, Story
from tests.unit.detectors import nodes, test_hang_across, test_late_ranks, test_slow_node
from tests.unit.detectors.test_cpu_contention import HOG, LOST, job
from tests.unit.detectors.test_gpu_throttled import hot

# Tools that would change something, or that are not everywhere: they only note what they were called with.
STAND_INS = [
    *("taskset", "renice", "kubectl", "docker", "podman", "nerdctl", "crictl", "systemctl", "crontab"),
    *("nvidia-smi", "nvidia-cuda-mps-control", "dcgmi", "compute-sanitizer", "py-spy", "lspci", "dmesg"),
    *("ss", "ip", "ingero", "python", "python3"),
]
HARMLESS = ["bash", "ls", "cat", "grep", "ps", "xargs", "head"]
ACROSS = (test_hang_across, test_late_ranks, test_slow_node)  # their stories are of several nodes
FOUND = 424242  # whoever has the name that is asked for
PGREP = f'#!/bin/sh\necho "pgrep $*" >> "$NOTES"\necho {FOUND}\n'
NOTE = '#!/bin/sh\necho "${0##*/} $*" >> "$NOTES"\n'
AS_ROOT = '#!/bin/sh\nexec "$@"\n'


@dataclass(frozen=True, slots=True)
class Told:
    """A finding, and what was known of the machine that its fixes are for."""

    finding: Finding
    facts: Facts


@dataclass
class Tales:
    """What detectors find in the stories of their own tests; and what they say when all have ended since."""

    now: list[Told] = field(default_factory=list)
    later: list[Told] = field(default_factory=list)

    def diagnose(self, story: Story) -> Diagnosis:
        timeline = story.timeline()
        found = detectors.diagnose(timeline)
        after = after_all_have_ended(timeline)
        self.now += [Told(each, timeline.facts) for each in found.findings]
        self.later += [Told(each, after.facts) for each in detectors.diagnose(after).findings]
        return found

    def across(self, timelines: Mapping[str, Timeline], known: Clocks, *local: Any) -> Across:
        found = judge_across(timelines, known, *local)
        after = {node: after_all_have_ended(each) for node, each in timelines.items()}
        self.now += [Told(each, timelines[each.node].facts) for each in found.findings]
        given = [
            fix for by_node in local for said in (by_node or {}).values() for each in said for fix in each.fix
        ]
        self.later += [
            Told(each, after[each.node].facts)
            for each in judge_across(after, known, *local).findings
            if not any(fix is other for fix in each.fix for other in given)  # as a node said before
        ]
        return found


def after_all_have_ended(timeline: Timeline) -> Timeline:
    """The same stretch, read when nobody of it is left: not those either of whom only the name is known."""
    facts = timeline.facts
    known = {pid: facts.processes.get(pid) or ProcessFact(pid, facts.comm(pid)) for pid in pids_of(facts)}
    ended = {pid: replace(each, end_ns=each.end_ns or facts.to_ns + 1) for pid, each in known.items()}
    return Timeline(replace(facts, processes=ended))


def pids_of(facts: Facts) -> set[int]:
    """Every process a story knows."""
    rows = [facts.culprits["pid"], facts.wakers["waker_pid"], facts.threads["pid"], facts.cards.users["pid"]]
    return {*facts.processes, *(int(pid) for pids in rows for pid in pids)} - {0}


@pytest.fixture(scope="module")
def tales() -> Tales:
    found = Tales()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Story, "diagnose", lambda story: found.diagnose(story))
        for module in (nodes, test_hang_across, test_slow_node):
            patch.setattr(module, "judge_across", found.across)
        for test in (*_stories(), *MORE):
            test()
    return found


@pytest.fixture(scope="module")
def told(tales: Tales) -> list[Told]:
    return tales.now


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
    own = [f"test_{each.name.replace('-', '_')}" for each in ALL if not each.unwatched]
    for module in [*(importlib.import_module(f"tests.unit.detectors.{name}") for name in own), *ACROSS]:
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


def fixes(told: list[Told]) -> list[tuple[Told, Fix]]:
    every = [(each, fix) for each in told for fix in each.finding.fix]
    return list(
        {(one.finding.kind, fix.command, fix.code, fix.if_ended): (one, fix) for one, fix in every}.values()
    )


def commands(told: list[Told]) -> list[str]:
    return sorted({text for _, fix in fixes(told) for text in (fix.command, fix.if_ended) if text})


def named(command: str, facts: Facts) -> set[int]:
    """The processes of the story that it names by number, in whatever way: -p 7, --pid=7, /proc/7/fd."""
    return set(map(int, re.findall(r"(?<![\w.])\d+(?![\w.])", command))) & pids_of(facts)


def asks_a_recording(command: str) -> bool:
    """There, a process keeps its number for ever."""
    return command.startswith("ingero ")


def test_every_kind_that_is_looked_for_was_told_with_a_fix(tales: Tales) -> None:
    looked_for = {each.name for each in ALL if not each.unwatched}
    for told in (tales.now, tales.later):
        assert {one.finding.kind for one, _ in fixes(told)} == looked_for
        assert len(commands(told)) > 30


def written() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Every fix that stands in a detector, as a pattern of its text."""
    for module in sorted(Path(detectors.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) in ("Fix", "look", "commands.look")
                and node.args
            ):
                text = node.args[0 if ast.unparse(node.func) == "Fix" else 2]
                parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                words = [part.value if isinstance(part, ast.Constant) else None for part in parts]
                if any(words):
                    pattern = "".join(".*" if each is None else re.escape(str(each)) for each in words)
                    yield f"{module.stem}:{node.lineno}", re.compile(pattern)


def test_every_fix_that_is_written_was_told(tales: Tales) -> None:
    texts = [fix.text for each in tales.now + tales.later for fix in each.finding.fix]
    assert not [where for where, text in written() if not any(text.match(each) for each in texts)]


def test_a_shell_takes_every_command(tales: Tales) -> None:
    for command in commands(tales.now + tales.later):
        done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)


def test_every_command_runs_and_touches_only_whom_it_is_about(tales: Tales, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in STAND_INS:
        _write(tools / name, NOTE)
    _write(tools / "sudo", AS_ROOT)
    _write(tools / "pgrep", PGREP)
    for name in HARMLESS:
        (tools / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    for one, fix in fixes(tales.now + tales.later):
        for command in filter(None, (fix.command, fix.if_ended)):
            done, called = _run(command, tools, tmp_path)
            assert done.returncode not in (126, 127), (command, done.stderr)  # it cannot be run
            assert "not found" not in done.stderr, (command, done.stderr)
            for pid in _changed(called):
                assert pid in (*fix.pids, FOUND), (command, one.finding.title)
            for name in re.findall(r"^pgrep -x (.*)$", called, re.M):
                assert name in {who.comm for cause in one.finding.causes for who in cause.who}, command


def test_whoever_a_command_names_by_number_is_alive_and_looked_at_again_before_it_is_shown(
    told: list[Told],
) -> None:
    some = 0
    for one, fix in fixes(told):
        alive = {pid for pid in pids_of(one.facts) if not ended(one.facts, pid)}
        if fix.command and not asks_a_recording(fix.command):
            assert named(fix.command, one.facts) <= set(fix.pids), (one.finding.kind, fix)
            some += len(named(fix.command, one.facts))
        assert set(fix.pids) <= alive, (one.finding.kind, fix)
        assert not named(fix.if_ended or "", one.facts), (one.finding.kind, fix)
    assert some > 10


def test_nobody_is_named_by_number_when_all_have_ended(tales: Tales) -> None:
    for one, fix in fixes(tales.later):
        assert not fix.pids, (one.finding.kind, fix)
        for command in filter(None, (fix.command, fix.if_ended)):
            assert asks_a_recording(command) or not named(command, one.facts), (one.finding.kind, fix)


def test_python_takes_every_line_for_the_program(tales: Tales) -> None:
    lines = {fix.code for _, fix in fixes(tales.now + tales.later) if fix.code}
    assert len(lines) > 5
    for line in lines:
        compile(line, "<fix>", "exec")


def test_ingero_takes_the_options_of_its_own_commands(tales: Tales) -> None:
    """And what they ask about is in the finding."""
    asked = [
        (one, fix.command) for one, fix in fixes(tales.now) if fix.command and asks_a_recording(fix.command)
    ]
    assert {one.finding.kind for one, _ in asked} >= {"nccl-straggler", "cpu-contention"}
    for one, command in asked:
        _, name, *options = shlex.split(command)
        subcommand = ingero.get_command(click.Context(ingero), name)
        assert subcommand is not None, command
        taken = subcommand.make_context(name, options).params
        who = {each.pid for cause in one.finding.causes for each in cause.who}
        assert taken["pid"] in {one.finding.victim.pid, *who}, command
        assert taken["node"] in (None, one.finding.node)


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
