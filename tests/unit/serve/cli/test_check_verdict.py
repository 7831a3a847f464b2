"""`ingero check` ends with yes or no."""

from __future__ import annotations

from ingero.model.checks import Check
from ingero.serve.cli.check import verdict


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
    assert said == "No: ingero cannot trace here until this is mended: BTF, privileges."
