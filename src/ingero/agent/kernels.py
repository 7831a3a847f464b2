"""Kernel names of a trace: heard, learnt where they were given before it, and put on its launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ingero.agent.name_rounds import NameRounds
from ingero.agent.symbols import Symbols
from ingero.agent.targets import Targets
from ingero.attach import shapes
from ingero.attach.kernel import KernelSide
from ingero.attach.session import Session
from ingero.attach.shapes import Shape
from ingero.capture.kernel_names import KernelBook
from ingero.model.operations import KernelName, Operation
from ingero.model.stack import NativeFrame
from ingero.model.window import Records, Window


class Kernels:
    """What the launches of the traced processes are called."""

    def __init__(
        self,
        kernel: KernelSide,
        shape: Shape,
        session: Session,
        targets: Targets,
        operations: Iterable[Operation],
        symbols: Symbols,
    ) -> None:
        self._symbols = symbols
        self._book = KernelBook(
            operations, self._functions_at, self._places_at, symbols.readable, symbols.handle_names
        )
        self._rounds = NameRounds(kernel, session, targets, lambda: shapes.entry_only(shape, kernel, "names"))

    def name(self, window: Window, names: Records) -> None:
        """Give the window's launches their names."""
        self._book.hear(names)
        numbers = self._book.name_calls(window.calls)
        window.calls["kernel"] = numbers
        window.kernels = self._book.names(numbers)
        window.kernels_learnt = self._book.take_learnt()

    def look(self, window: Window, gone: set[int]) -> None:
        """Look for names that are missing, or stop; forget processes that are gone."""
        self._rounds.step(window.end_ns, self._book.wanting, self._book.taught, window.watched_share)
        for exec_ in window.execs:
            pid = int(exec_["h"]["pid"])
            self._book.forget({pid}, before_ns=int(exec_["h"]["start_ns"]))
            self._symbols.forget({pid})
        self._book.forget(gone)
        self._symbols.forget(gone)
        self._rounds.forget(gone)

    def close(self) -> None:
        self._rounds.close()

    def _functions_at(self, pid: int, addresses: Sequence[int]) -> list[KernelName | None]:
        frames = self._symbols.frames_at(pid, np.array(addresses, np.uint64))
        return [frame and (_symbol(frame) or _place(frame)) for frame in frames]

    def _places_at(self, pid: int, addresses: Sequence[int]) -> list[KernelName | None]:
        frames = self._symbols.frames_at(pid, np.array(addresses, np.uint64))
        return [frame and _place(frame) for frame in frames]


def _place(frame: NativeFrame) -> KernelName:
    return KernelName(f"{frame.module.rpartition('/')[2]}+{frame.offset:#x}", known=False)


def _symbol(frame: NativeFrame) -> KernelName | None:
    """None where the file has no symbol there, or there is no file."""
    if frame.module.startswith("[") or frame.function == _place(frame).text:
        return None
    return KernelName(frame.function)
