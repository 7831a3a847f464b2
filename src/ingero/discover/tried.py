"""Kernels that somebody tried ingero on; `make test-kernels` writes the file."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from typing import Any


def rows() -> list[dict[str, Any]]:
    text = resources.files("ingero.discover").joinpath("tried_kernels.toml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["kernel"]
    return found


def was_tried(release: str, machine: str) -> bool:
    """One of the same version, with every test passed; its distribution and patches may be others."""
    return any(
        each["machine"] == machine and not each["failed"] and _version(each["release"]) == _version(release)
        for each in rows()
    )


def _version(release: str) -> str:
    found = re.match(r"\d+\.\d+", release)
    return found.group() if found else release
