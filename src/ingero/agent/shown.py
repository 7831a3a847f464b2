"""What surfaces are given while tracing: the lists of the live view, and every record to whoever reads
them all.
"""

from __future__ import annotations

from collections.abc import Iterator

from ingero.agent.diagnosis import LiveDiagnosis
from ingero.agent.interpreters import Collectors
from ingero.agent.recorder import Recorder
from ingero.agent.targets import Targets
from ingero.attach.kernel import KernelSide
from ingero.attach.session import Session
from ingero.model.live import UNREAD, DatabaseStatus, LiveTarget, ProbedLibrary, ProbeSource, Surface
from ingero.model.window import Window
from ingero.serve.answers.records import RecordStream

# What the live view lists: who is traced, which files carry probes, and how many of each source.


def targets(known: Targets) -> Iterator[LiveTarget]:
    for pid, target in sorted(known.live.items()):
        yield LiveTarget(pid, target.process.comm, target.process.cmdline)


def libraries(session: Session, known: Targets) -> Iterator[ProbedLibrary]:
    for file, attached in session.files.items():
        users = sum(file in target.files for target in known.live.values())
        yield ProbedLibrary(attached.path, attached.kind, users)


def probes(session: Session, collectors: Collectors, kernel: KernelSide) -> Iterator[ProbeSource]:
    counts = session.counts()
    left_out = [why for each in session.files.values() for why in (*each.costly, *each.refused)]
    for source in ("runtime", "driver", "graph", "nccl"):
        yield ProbeSource(source, counts[source])
    if python := collectors.count():
        yield ProbeSource("python", python)
    if left_out:
        yield ProbeSource("left out", 0, len(left_out), left_out[0])
    for source, state in kernel.sources.items():
        yield ProbeSource(source, state.attached, len(state.refused), "; ".join(state.refused))


def warnings(known: Targets, told: LiveDiagnosis | None) -> tuple[str, ...]:
    return (*known.warnings.values(), *([told.trouble] if told and told.trouble else []))


def database(recorder: Recorder | None) -> DatabaseStatus:
    if recorder is None:
        return DatabaseStatus()
    return DatabaseStatus(str(recorder.path), recorder.size_bytes(), recorder.status)


# Every record, to whoever wants to read them all. What a reader is too slow for is counted; nobody waits.


class Telling:
    """The stream of records."""

    def __init__(self, surface: Surface, stream: RecordStream) -> None:
        self._surface, self._stream = surface, stream
        self._untold = 0

    def tell(self, window: Window) -> None:
        if not self._surface.wants_records:
            return
        if self._surface.behind():
            self._untold += self._stream.skip(window)
        else:
            self._surface.records(self._stream.lines(window))

    def losses(self) -> dict[str, int]:
        return {UNREAD: self._untold} if self._untold else {}
