"""Whether this machine can be traced, and which ingero it is: what discovery sees and what attaching
needs.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

import msgspec

from ingero import __version__
from ingero.errors import IngeroError
from ingero.model.check_line import Check

# Whether this machine can be traced: what discovery sees and what attaching needs.
#
# A part that cannot even be asked (no native module, no privilege) is a failed
# check with the reason, never a missing line.


class CheckAnswer(msgspec.Struct, frozen=True):
    """The answer; `ok` is false as soon as one check failed."""

    ok: bool
    checks: list[Check]


def get_checks(db: Path | None = None) -> CheckAnswer:
    """Look at everything; `db` says which disk must have space."""
    from ingero.discover.host_checks import run_checks
    from ingero.store.location import default_path

    more = (
        ("attach shapes", lambda: asked("attach shapes", _shapes)),
        ("probe cost", lambda: asked("probe cost", _cost)),
        ("switch cost", lambda: asked("switch cost", _switch_cost)),
    )
    checks = run_checks((db or default_path()).parent, more)
    return CheckAnswer(all(check.status != "failed" for check in checks), checks)


def write_support_bundle(path: Path, answer: CheckAnswer) -> list[str]:
    """Write the .tar.gz to send when asking for help; the names of what is in it."""
    from ingero.discover.support import support_bundle

    return support_bundle(path, answer.checks)


def asked(name: str, ask: Callable[[], list[Check]]) -> list[Check]:
    """The checks, or one that says why there are none."""
    try:
        return ask()
    except IngeroError as error:
        return [Check(name, "failed", error.message, error.hint)]
    except ImportError as error:
        advice = "Reinstall ingero: a part of it is missing or was not built."
        return [Check(name, "failed", f"cannot be asked: {error}", advice)]


def _shapes() -> list[Check]:
    from ingero.attach.shapes import describe_shapes

    return list(describe_shapes())


def _cost() -> list[Check]:
    from ingero.attach.probe_cost import describe_cost

    return list(describe_cost())


def _switch_cost() -> list[Check]:
    from ingero.attach.probe_cost import describe_switch_cost

    return [describe_switch_cost()]


# Which ingero this is, and on what it runs.


class Version(msgspec.Struct, frozen=True):
    """The answer; libbpf is None where the native module is not built."""

    version: str
    python: str
    kernel: str
    machine: str
    libbpf: str | None


def get_version() -> Version:
    uname = os.uname()
    return Version(__version__, platform.python_version(), uname.release, uname.machine, _libbpf_version())


def _libbpf_version() -> str | None:
    try:
        from ingero.native import _shim  # type: ignore[attr-defined,unused-ignore]

        return str(_shim.libbpf_version())
    except (ImportError, AttributeError):
        return None
