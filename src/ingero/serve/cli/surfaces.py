"""Where a trace is shown: plain tables, lines of JSON, nothing, or the live view.

Every surface runs the trace it is given through `run`. Only the live view needs
the main thread for itself (serve/tui/surface.py); the others run the trace in it.
A reader that goes away ends the trace, it does not break it; one that does not read
holds nothing up (`Outlet`).
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO, cast

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ingero.model.live import UNREAD, LiveView, QuietSurface
from ingero.serve import terminal
from ingero.serve.cli import output, tables
from ingero.serve.cli.starting import StartingLine

PLAIN_EVERY_NS = 5_000_000_000
LOG_EVERY_NS = 10_000_000_000


class PlainSurface(QuietSurface):
    """Tables now and then on a terminal; else a line now and then, and tables at the end."""

    def __init__(self, out: TextIO, *, every_ns: int | None = None, updates: bool = True) -> None:
        super().__init__()
        self.console = tables.console(outlet(out))
        self._starting = StartingLine()
        self._updates = updates
        self._every_ns = every_ns or (PLAIN_EVERY_NS if self.console.is_terminal else LOG_EVERY_NS)
        self._due_ns = 0
        self._told: set[tuple[str, str]] = set()

    def starting(self, doing: str) -> None:
        self._starting.say(doing)

    def begin(self, view: LiveView) -> None:
        self._due_ns = view.elapsed_ns + self._every_ns
        if self._updates:
            self._print(tables.header(view))

    def update(self, view: LiveView) -> None:
        self._print(())  # a reader that went away is noticed
        if not self._updates or view.elapsed_ns < self._due_ns:
            return
        self._due_ns = view.elapsed_ns + self._every_ns
        if self.console.is_terminal:
            self._print(tables.body(view))
        else:
            self._print([tables.log_line(view), *self._new_findings(view)])

    def _new_findings(self, view: LiveView) -> list[Text]:
        """In a log each finding once, and again when it became worse or better."""
        told, self._told = self._told, {(finding.key, finding.severity) for finding in view.findings}
        return [
            terminal.finding_line(finding)
            for finding in view.findings
            if (finding.key, finding.severity) not in told
        ]

    def end(self, view: LiveView, exit_code: int) -> None:  # noqa: ARG002
        parts = tables.body(view) if self._updates else [*tables.header(view), *tables.body(view)]
        self._print([*parts, *tables.next_steps(view)])
        settled(self.console.file)

    def _print(self, parts: Iterable[Any]) -> None:
        if is_behind(self.console.file):  # the next tables say it all again
            return
        try:
            for part in map(self._unwrapped, parts):
                self.console.print(part, soft_wrap=isinstance(part, Text))
            self.console.file.flush()
        except BrokenPipeError:
            self.stop_requested.set()
            self.console = Console(file=io.StringIO())
            self._updates = False
        except OSError:  # a full disk below a log: this part is missing there, the trace goes on
            return

    def _unwrapped(self, part: Any) -> Any:
        """In a log a line stays a line, so that it can be searched for."""
        if self.console.is_terminal or not isinstance(part, Padding) or not isinstance(part.renderable, Text):
            return part
        return Text(" " * part.left).append_text(part.renderable)


class JsonSurface(QuietSurface):
    """One JSON object per line on `out`; the header goes to `err`."""

    wants_records = True

    def __init__(self, out: TextIO, err: TextIO) -> None:
        super().__init__()
        self._out: TextIO | None = outlet(out)
        self._err = tables.console(outlet(err))
        self._starting = StartingLine()
        self._warned: set[str] = set()
        self._recorded = False
        self._failed = False

    def run(self, work: Callable[[], int]) -> int:
        return work() or int(self._failed)

    def starting(self, doing: str) -> None:
        self._starting.say(doing)

    def begin(self, view: LiveView) -> None:
        self._recorded = view.database.path is not None
        for part in tables.header(view):
            self._tell(part)

    def update(self, view: LiveView) -> None:
        self.records(())  # a reader that went away is noticed while nothing happens, too
        problem = view.database.problem
        for warning in (*view.warnings, *([f"db: {problem}"] if problem else [])):
            self._warn(warning)

    def _warn(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            self._tell(tables.warning_line(warning))

    def _tell(self, part: Any) -> None:
        if is_behind(self._err.file):
            return
        with contextlib.suppress(OSError):
            self._err.print(part, soft_wrap=True)

    def behind(self) -> bool:
        late = is_behind(self._out)
        if late:
            self._warn("nobody reads standard output: records are skipped there")
        return late

    def records(self, lines: Iterable[Mapping[str, Any]]) -> None:
        if self._out is None:
            return
        text = "".join(f"{output.to_json(line)}\n" for line in lines)
        try:
            self._out.write(text)
            self._out.flush()
        except BrokenPipeError:
            self._out = None
            self.stop_requested.set()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Half a line may be out: nothing may follow it."""
        self._out, self._failed = None, True
        self._warn(f"the records can no longer be written: {error.strerror}")
        if not self._recorded:
            self.stop_requested.set()

    def end(self, view: LiveView, exit_code: int) -> None:  # noqa: ARG002
        left = settled(self._out)
        self.records(())  # the last of them may have failed
        unread = (left if self._out else 0) + view.losses.get(UNREAD, 0)
        if unread:
            self._warn(f"standard output was not read in time: {unread:,} records were skipped there")
        self._tell(tables.log_line(view))
        settled(self._err.file)


# Output that never holds up who writes it: a thread of its own waits for the reader.
#
# A pipe nobody reads, a terminal stopped with Ctrl-S: writing there blocks, and meanwhile the
# kernel's ring would overrun. What waits is bounded by its writer, who asks `behind` first
# and counts what it leaves out. Bytes go to the descriptor itself: a buffer of Python's that is
# locked by a blocked thread would crash the interpreter at its end.


MOST_BYTES = 16 << 20  # some 50 thousand records; a window more may come on top
PATIENCE_S = 2.0  # at the end, for a reader that takes nothing


class Outlet:
    """A text file to write to."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._handle = file, file.fileno()
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._failure: OSError | None = None
        self._thread: threading.Thread | None = None

    @property
    def encoding(self) -> str:
        return self._file.encoding

    def isatty(self) -> bool:
        return self._file.isatty()

    def fileno(self) -> int:
        return self._handle

    @property
    def behind(self) -> bool:
        """More waits than is reasonable: better write nothing now."""
        return self._waiting_bytes > MOST_BYTES

    def write(self, text: str) -> int:
        """Returns at once; why an earlier text could not be written is raised here."""
        data = text.encode(self.encoding or "utf-8", "replace")
        with self._changed:
            if self._failure is not None:
                raise self._failure
            self._waiting.append(memoryview(data))
            self._waiting_bytes += len(data)
            if self._thread is None:
                self._file.flush()  # what was printed before comes first
                self._thread = threading.Thread(target=self._work, name="output", daemon=True)
                self._thread.start()
        return len(text)

    def flush(self) -> None:
        """Nothing is held back; raises as `write` does."""
        if self._failure is not None:
            raise self._failure

    def settle(self) -> int:
        """Wait while the reader takes something; how many lines it did not take."""
        with self._changed:
            left = -1
            while self._waiting and self._failure is None and left != self._waiting_bytes:
                left = self._waiting_bytes
                self._changed.wait(PATIENCE_S)
            return sum(bytes(data).count(b"\n") for data in self._waiting)

    def _work(self) -> None:
        """Until nothing waits; the next text has a thread of its own."""
        while data := self._next():
            try:
                taken = self._take(data)
            except OSError as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._waiting_bytes -= taken
                self._waiting[0] = data[taken:]
                self._changed.notify_all()

    def _next(self) -> memoryview | None:
        with self._changed:
            while self._waiting:
                if self._waiting[0]:
                    return self._waiting[0]
                self._waiting.popleft()
            self._thread = None
            self._changed.notify_all()
            return None

    def _take(self, data: memoryview) -> int:
        try:
            return os.write(self._handle, data[: 1 << 16])
        except BlockingIOError:  # whoever shares the pipe made it so
            select.select([], [self._handle], [])
            return 0


def outlet(file: TextIO) -> TextIO:
    """What to write to instead; a file in memory blocks nobody."""
    try:
        file.fileno()
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        return file
    return cast(TextIO, Outlet(file))


def is_behind(file: Any) -> bool:
    return isinstance(file, Outlet) and file.behind


def settled(file: Any) -> int:
    """Whatever could be written is; how many lines could not."""
    return file.settle() if isinstance(file, Outlet) else 0
