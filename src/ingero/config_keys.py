"""What a key of ingero.yaml is made of; config.py says how the file is read."""

from __future__ import annotations

import msgspec
from msgspec import Meta


def key(description: str, variable: str, check: str = "") -> Meta:
    """Its meaning, the variable that overrides it, and the check of config.CHECKS it has to pass."""
    return Meta(description=description, extra={"variable": variable, "check": check})


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Unknown keys are mistakes."""
