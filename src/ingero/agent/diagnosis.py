"""The diagnosis while tracing: every few seconds over the last minutes, at the end over all that time allows.

Reads what the writer has just stored, with the same code as `explain`, in the
writer's thread: the live answer and the later one cannot differ, and draining never
waits for it. With many jobs a look takes seconds: looks then come seldom enough to take
no more than a small part of a core. Trouble here is told and does not stop the recording.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from ingero.correlate.timeline import Timeline
from ingero.detectors import diagnose, in_order
from ingero.detectors.lasting import since_first, weigh
from ingero.model.facts import SLICE_NS
from ingero.model.finding import STATES, Finding
from ingero.model.live import LiveView
from ingero.model.report import Bound
from ingero.native import _shim
from ingero.store.findings import FindingRow
from ingero.store.writer import Writer

EVERY_NS = 2 * SLICE_NS
MOST_SHARE = 0.1  # of a core, for looking: 160 jobs within the reach take 2.4 s a look
REACH_NS = 150 * 1_000_000_000  # live findings look back this far; the last one over all
LAST_NS = 5 * 1_000_000_000  # for the last look; a container that is stopped is killed after 30 s
QUICK_NS = 500_000_000  # a look that took less is no reason to look at less
MOST_PAST = 20  # that have ended and are still shown
MOST_KEPT = 1000  # findings remembered from earlier looks; jobs that come and go have new ones for ever


class LiveDiagnosis:
    """Keeps the findings of a recording up to date."""

    def __init__(self, writer: Writer, cpu_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self.findings: tuple[Finding, ...] = ()
        self.past: tuple[Finding, ...] = ()
        self.bound: tuple[Bound, ...] = ()
        self.steps: dict[int, str] = {}  # the operation that marks a step, by process
        self.looked_ns: int | None = None
        self.trouble = ""
        self._writer = writer
        self._cpu_ns = cpu_ns
        self._due_ns = 0
        self._took_ns = 0  # by the last look
        self._lines: dict[str, Finding] = {}  # findings with a line, as last told
        self._states: dict[str, Finding] = {}  # findings of state that stand, as last told

    def consider(self, now_ns: int) -> None:
        """Look again when it is time to (monotonic)."""
        if not self._due_ns:
            self._due_ns = now_ns + EVERY_NS
        if now_ns >= self._due_ns:
            before_ns = self._cpu_ns()
            self._look(REACH_NS)
            _shim.give_back()  # it took tens of megabytes for a moment
            self._took_ns = self._cpu_ns() - before_ns
            self._due_ns = now_ns + max(EVERY_NS, int(self._took_ns / MOST_SHARE))

    def conclude(self) -> None:
        """The recording is complete: over all of it, where whoever stops us can wait that long."""
        affordable_ns = REACH_NS * LAST_NS // max(self._took_ns, 1)
        self._look(None if self._took_ns < QUICK_NS else max(REACH_NS, affordable_ns))

    def _look(self, reach_ns: int | None) -> None:
        try:
            facts = self._writer.facts(reach_ns)
            timeline = Timeline(facts)
            told = diagnose(timeline)
        except (sqlite3.Error, ValueError, ArithmeticError, LookupError, TypeError) as error:
            self.trouble = f"the diagnosis failed: {type(error).__name__}: {error}"
            return
        found = [since_first(self._with_line(each), self._states.get(each.key)) for each in told.findings]
        weighed = weigh(self._states.values(), found, max(facts.from_ns, facts.complete_from_ns or 0), None)
        lately = sorted(weighed.kept, key=lambda each: each.last_ns)[-MOST_KEPT:]  # all of them are stored
        standing = in_order([*found, *lately])
        self._states = {each.key: each for each in standing if each.kind in STATES}
        self._remember_past(found, facts.from_ns)
        marks = {job.pid: job.pace.op for job in timeline.jobs if job.pace}
        self.steps = {pid: facts.ops[op].name for pid, op in marks.items() if op is not None}
        self.looked_ns = facts.to_ns
        self.bound = tuple(told.bound)
        self.findings = tuple(standing)
        recording = self._writer.recording_id
        self._writer.save_findings(row_of(each, recording) for each in found)
        self._writer.drop_findings(f"{recording}:{each.key}" for each in weighed.withdrawn)

    def shown_in(self, view: LiveView) -> LiveView:
        """The view with what was found."""
        return dataclasses.replace(
            view, findings=self.findings, past=self.past, looked_ns=self.looked_ns, bound=self.bound
        )

    def _remember_past(self, found: list[Finding], from_ns: int) -> None:
        """Findings about time that passed out of reach: they have ended, and were not taken back."""
        known = {each.key for each in found}
        gone = [each for each in (*self.past, *self.findings) if each.key not in known]
        kept = {each.key: each for each in gone if each.kind not in STATES and each.last_ns < from_ns}
        self.past = tuple(sorted(kept.values(), key=lambda each: each.last_ns)[-MOST_PAST:])

    def _with_line(self, finding: Finding) -> Finding:
        """Detail goes first when the database grows too large: a line once told stays true."""
        if finding.source is not None:
            self._lines.pop(finding.key, None)  # the last ones told are the last ones forgotten
            self._lines[finding.key] = finding
            while len(self._lines) > MOST_KEPT:
                del self._lines[next(iter(self._lines))]
            return finding
        told = self._lines.get(finding.key)
        return finding if told is None else replace(finding, source=told.source, stack=told.stack)


def row_of(finding: Finding, recording_id: int) -> FindingRow:
    """A finding as it is stored; a number is used again by later recordings."""
    return FindingRow(
        key=f"{recording_id}:{finding.key}",
        kind=finding.kind,
        severity=finding.severity.value,
        title=finding.title,
        first_ns=finding.first_ns,
        last_ns=finding.last_ns,
        json=msgspec.json.encode(finding).decode(),
        confidence=finding.confidence,
        pid=finding.victim.pid,
        tid=finding.victim.tid,
        op=finding.effect.op,
        excess_ns=finding.effect.excess_ns,
        wall_share=finding.effect.wall_share,
        explained_share=finding.explained_share,
        source_file=finding.source.file if finding.source else None,
        source_line=finding.source.line if finding.source else None,
        source_function=finding.source.function if finding.source else None,
    )
