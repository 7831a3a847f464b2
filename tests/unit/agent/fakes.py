"""What cannot be had without a kernel that takes probes."""

from __future__ import annotations


class Links:
    """Probes that are on until they are let go of."""

    prompt = True

    def __init__(self) -> None:
        self.held = True

    def let_go(self) -> None:
        self.held = False

    def gone(self, wait: bool = False) -> bool:
        return not self.held
