"""`ingero check` ends with yes or no."""

from __future__ import annotations

from ingero.model.check_line import Check
from ingero.serve.cli.check import _grouped, _value, verdict


def test_yes_and_the_next_command() -> None:
    assert verdict([Check("kernel", "ok", "6.18"), Check("NVIDIA driver", "ok", "580")]).startswith("Yes: ")
    assert " trace" in verdict([Check("kernel", "ok", "6.18")])


def test_a_warning_is_no_obstacle() -> None:
    said = verdict([Check("NVIDIA driver", "warning", "not loaded", "install it")])
    assert said.startswith("Yes: ")
    assert "no GPU" in said
    assert "demo --live" in said


def test_no_and_what_stands_in_the_way() -> None:
    said = verdict([Check("BTF", "failed", "none", "x"), Check("privileges", "failed", "none", "y")])
    assert said == "No: ingero cannot trace here until this is fixed: BTF, privileges."


def test_how_a_python_is_read_is_told_where_asked_for() -> None:
    check = Check("Python", "ok", "process 7: 3.12; frames can be read, thread state by pthread key at 0x318")
    assert _value(check, verbose=False) == "process 7: 3.12; frames can be read"
    assert _value(check, verbose=True) == check.value


def test_processes_of_which_the_same_is_said_share_a_line() -> None:
    many = [
        Check("Python", "ok", f"process {pid}: 3.12; frames can be read, by key {pid}") for pid in range(8)
    ]
    other = Check("Python", "warning", "process 9: 3.9; frames cannot be read: too old", "stacks lack lines")
    kernel = Check("kernel", "ok", "6.18")
    found = _grouped([kernel, *many, other])
    assert [each.value for each in found] == [
        "6.18",
        "processes 0, 1, 2, 3, 4 and 3 more: 3.12; frames can be read",
        "process 9: 3.9; frames cannot be read: too old",
    ]
