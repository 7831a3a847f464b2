"""What cannot be had without a kernel that takes probes, and a reader that needs no process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from ingero.agent.reading import Reading

P = ParamSpec("P")
T = TypeVar("T")


class Here:
    """Answers in this process: where nobody minds waiting."""

    def __init__(self) -> None:
        self._reading = Reading()

    def ask(self, what: Callable[Concatenate[Reading, P], T], *args: P.args, **more: P.kwargs) -> T:
        return what(self._reading, *args, **more)


class Links:
    """Probes that are on until they are let go of."""

    prompt = True

    def __init__(self) -> None:
        self.held = True

    def let_go(self) -> None:
        self.held = False

    def gone(self, wait: bool = False) -> bool:
        return not self.held
