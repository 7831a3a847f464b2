"""Probes on the garbage collectors of the traced processes' interpreters.

Apart from the probes on CUDA libraries: other programs in the kernel, and one file may
be both an interpreter and a CUDA runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from ingero.agent.library_room import LibraryRoom
from ingero.agent.readers import Asking
from ingero.attach.session import File, Planner, Session
from ingero.attach.shapes import Shape
from ingero.discover.libraries import Library
from ingero.errors import AttachError

UNUSED_NS = 60_000_000_000
UNSEEN = "garbage collections are not counted, they only show in samples: "


class Collectors:
    """Interpreter files with a probe on their collector; loaded when the first is needed."""

    def __init__(
        self,
        make_shape: Callable[[], Shape],
        without: frozenset[str],
        readers: Asking,
        planner: Planner | None = None,
    ) -> None:
        self._planner = planner
        self._make_shape = make_shape
        self._off = "python" in without
        self._session: Session | None = None
        self._refused = ""
        self._used_ns: dict[File, int] = {}
        self._room = LibraryRoom(readers)

    def prepare(self) -> None:
        """Load it before a job starts: that takes 40 ms, in which nobody would hear what the job loads."""
        if not self._off:
            with suppress(AttachError):  # told when it is wanted
                self._open()

    def attach(self, library: Library) -> str:
        """Why it cannot be watched; empty when it is, or is not wanted."""
        if self._off:
            return ""
        try:
            if self._room.full(library.file, library.path_for_kernel, self._open().files):
                return UNSEEN + "too many interpreters have probes already"
            attached = self._open().attach(
                library.file, library.path_for_kernel, library.path, library.kind, hot_runtime=False
            )
        except AttachError as error:
            return UNSEEN + error.message
        if attached.points:
            return ""
        left_out = [*attached.costly, *attached.refused]
        return UNSEEN + (left_out[0] if left_out else f"{library.path} has no symbol of its collector")

    def _open(self) -> Session:
        if self._session is None:
            if not self._refused:
                try:
                    self._session = Session(self._make_shape(), planner=self._planner)
                    return self._session
                except OSError as error:
                    self._refused = (error.strerror or str(error)).splitlines()[0]
            raise AttachError(f"the kernel refused the probe: {self._refused}")
        return self._session

    def release_unused(self, used: Iterable[File], now_ns: int) -> None:
        """Take the probes off interpreters nobody traced has run for a while."""
        self._used_ns.update(dict.fromkeys(used, now_ns))
        for file in list(self._session.files) if self._session else ():
            if now_ns - self._used_ns.setdefault(file, now_ns) > UNUSED_NS:
                del self._used_ns[file]
                self._session.release(file)  # type: ignore[union-attr]

    def count(self) -> int:
        """Functions probed."""
        return self._session.counts()["python"] if self._session else 0

    def close(self) -> None:
        if self._session:
            self._session.close()
