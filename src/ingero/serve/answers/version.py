"""Which ingero this is, and on what it runs."""

from __future__ import annotations

import os
import platform

import msgspec

from ingero import __version__


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
