"""`ingero check` ends with yes or no."""

from __future__ import annotations

from ingero.model.checks import Check
from ingero.serve.cli.check import _value, verdict


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
