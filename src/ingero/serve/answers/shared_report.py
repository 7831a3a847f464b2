"""Everything a report to send on shows: diagnosis, the job's seconds, stacks. Bounded in size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ingero import __version__
from ingero.model.report import Report
from ingero.serve.answers.flame import FlameAnswer, get_flame
from ingero.serve.answers.query import Range
from ingero.serve.answers.zoom import ZoomAnswer, get_zoom
from ingero.serve.answers.zoom_events import ZoomTrack

WIDTH = 1600  # points of the timeline, however long the recording is
THREADS = 16
FLAMES = ("calls", "waits", "samples")
KEPT = (100, 30, 10, 3)  # findings, where there are so many that they alone are too large
CLOSE = frozenset({"calls", "waits", "called", "in_flight"})  # kinds that grow with the number of calls


class SharedReport(msgspec.Struct, frozen=True):
    """`left_out` says what was too large; `found`: how many findings there are, with those left out."""

    report: Report
    timeline: ZoomAnswer
    flames: list[FlameAnswer]
    version: str
    found: int
    left_out: str = ""


def get_shared_report(
    db: Path | None, report: Report, node: str | None, size_of: Callable[[object], int], most: int
) -> SharedReport:
    """Around a diagnosis of this database; no larger than `most`, by the measure of whoever writes it."""
    window = report.window
    when = Range(None, str(window.from_ns), str(window.to_ns))
    zoom = get_zoom(db, when, WIDTH, node)
    flames = [get_flame(db, when, what, node=node) for what in FLAMES]
    shared = SharedReport(
        _without_unused(report), replace(zoom, tracks=_job_first(zoom.tracks)),
        [each for each in flames if each.root.children and each.without_share != 1], __version__,
        len(report.findings),
    )  # fmt: skip
    return _small_enough(shared, size_of, most)


def _without_unused(report: Report) -> Report:
    """Operations and threads of processes fill most of a report, and this page shows where time went."""
    processes = [replace(each, lines=[], threads=[]) for each in report.processes if each.threads_ns]
    return replace(report, processes=processes)


def _job_first(tracks: list[ZoomTrack]) -> list[ZoomTrack]:
    threads = [each for each in tracks if each.kind == "accounted"][:THREADS]
    rest = [each for each in tracks if each.kind != "accounted"]
    return [*rest, *threads]


def _small_enough(shared: SharedReport, size_of: Callable[[object], int], most: int) -> SharedReport:
    """What matters least goes first."""
    steps: tuple[tuple[str, Callable[[SharedReport], SharedReport]], ...] = (
        ("single calls", lambda one: _only(one, lambda track: track.kind not in CLOSE)),
        ("counters", lambda one: _only(one, lambda track: track.kind == "accounted")),
        ("stacks", lambda one: replace(one, flames=one.flames[:1])),
        ("threads that feed no GPU", lambda one: _only(one, lambda track: track.feeder)),
        ("all stacks", lambda one: replace(one, flames=[])),
        ("all threads but one", _one_thread),
        *((f"all but the worst {kept} findings and processes", _worst(kept)) for kept in KEPT),
        ("the timeline", lambda one: _only(one, lambda _: False)),
    )
    gone: list[str] = []
    for words, smaller in steps:
        if size_of(shared) <= most:
            break
        shared = smaller(shared)
        gone.append(words)
    return replace(shared, left_out=", ".join(gone))


def _one_thread(shared: SharedReport) -> SharedReport:
    return replace(shared, timeline=replace(shared.timeline, tracks=shared.timeline.tracks[:1]))


def _worst(kept: int) -> Callable[[SharedReport], SharedReport]:
    def cut(shared: SharedReport) -> SharedReport:
        report = shared.report
        lists = ("findings", "unexplained", "processes", "bound", "not_watched")
        first = {name: getattr(report, name)[:kept] for name in lists}
        return replace(shared, report=replace(report, **first))

    return cut


def _only(shared: SharedReport, wanted: object) -> SharedReport:
    assert callable(wanted)
    tracks = [track for track in shared.timeline.tracks if wanted(track)]
    return replace(shared, timeline=replace(shared.timeline, tracks=tracks))
