"""Kernels that somebody tried ingero on; `make test-kernels` writes the file."""

from __future__ import annotations

import re
import tomllib
from importlib import resources


def was_tried(release: str, machine: str) -> bool:
    """One of the same version, with every test passed; its distribution and patches may be others."""
    text = resources.files("ingero.discover").joinpath("tried_kernels.toml").read_text(encoding="utf-8")
    return any(
        each["machine"] == machine and not each["failed"] and _version(each["release"]) == _version(release)
        for each in tomllib.loads(text)["kernel"]
    )


def _version(release: str) -> str:
    found = re.match(r"\d+\.\d+", release)
    return found.group() if found else release
