"""One line of `ingero check`: what was looked at, how it stands and what to do about it.

Discovery, attaching and the answers all produce these; the surfaces only render
them. This is not the place where anything is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Check:
    """The result of looking at one thing; `advice` says what to do unless it is ok."""

    name: str
    status: Status
    value: str
    advice: str = ""
