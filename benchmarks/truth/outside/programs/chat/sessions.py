"""What a conversation keeps."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Session:
    number: int
    length: int = 0
    history: list[str] = field(default_factory=list)


def trim_history(session: Session) -> None:
    session.history = [*session.history[-20:], f"turn {session.length}"]


def audit(session: Session, seconds: float) -> None:
    """Hands the turn to the archive, which takes its time to confirm."""
    session.history.append("audited")
    time.sleep(seconds)
