"""Kernel names of a trace: heard, learnt where they were given before it, and put on its launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ingero.agent.host_functions import HostFunctions
from ingero.agent.name_rounds import NameRounds
from ingero.agent.targets import Targets
from ingero.attach import shapes
from ingero.attach.kernel import KernelSide
from ingero.attach.session import Session
from ingero.attach.shapes import Shape
from ingero.capture.kernel_names import KernelBook
from ingero.model.operations import Operation
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
    ) -> None:
        self._functions = HostFunctions()
        functions = self._functions
        self._book = KernelBook(operations, functions.functions_at, functions.places_at, _as_they_are)
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
        self._rounds.step(window.end_ns, self._book.wanting, self._book.taught)
        for exec_ in window.execs:
            pid = int(exec_["h"]["pid"])
            self._book.forget({pid}, before_ns=int(exec_["h"]["start_ns"]))
            self._functions.forget({pid})
        self._book.forget(gone)
        self._functions.forget(gone)
        self._rounds.forget(gone)

    def close(self) -> None:
        self._rounds.close()


def _as_they_are(names: Sequence[bytes]) -> list[str]:
    return [name.decode("utf-8", "replace") for name in names]
