"""The demo as lines: what happens, and every other second where the job's time went.

Every iteration of the demo's jobs waits once for the GPU; that is how they are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TextIO

from rich.padding import Padding
from rich.text import Text

from ingero.model.finding import Finding
from ingero.model.live import LiveView, Surface
from ingero.model.words import bucket_words
from ingero.serve import terminal
from ingero.serve.cli.surfaces import PlainSurface

EVERY_NS = 2_000_000_000
BAR = 24
MADE_UP = "made up: "  # said once, above


class Narration(PlainSurface):
    """Tells a demo. The diagnosis comes afterwards, from the recording."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out, every_ns=EVERY_NS)
        self._said = ""
        self._before = LiveView(0, 0)
        self._known: set[str] = set()

    def begin(self, view: LiveView) -> None:
        self._before = replace(view, elapsed_ns=0)  # getting ready took time as well
        self._due_ns = EVERY_NS
        self._tell(self._before)

    def update(self, view: LiveView) -> None:
        for finding in view.findings:
            if finding.key not in self._known and finding.kind not in self._known:
                self._known |= {finding.key, finding.kind}
                self._line(Padding(_found(finding), (0, 0, 0, 7)))
        if view.elapsed_ns >= self._due_ns:
            self._due_ns = view.elapsed_ns + EVERY_NS
            self._picture(view)
            self._before = view
        self._tell(view)

    def end(self, view: LiveView, exit_code: int) -> None:
        """The diagnosis says the rest."""

    def _tell(self, view: LiveView) -> None:
        says = view.warnings[0] if view.warnings else ""
        if says and says != self._said:
            self._said = says
            at = f"{view.elapsed_ns // 1_000_000_000} s"
            self._line(Text(f"{at:>5}  {terminal.clean(says.removeprefix(MADE_UP), 200)}", "bold"))

    def _picture(self, view: LiveView) -> None:
        """The job's last two seconds in a line."""
        if not view.processes:
            return
        job = min(view.processes, key=lambda each: each.pid)
        before = next((each for each in self._before.processes if each.pid == job.pid), None)
        spent = _difference(job.time_ns, before.time_ns if before else {})
        seconds = (view.elapsed_ns - self._before.elapsed_ns) / 1e9
        steps = _waits(job) - (_waits(before) if before else 0)
        line = Text(f"{'':7}{steps / seconds:3.0f} iterations/s  ")
        if self.console.is_terminal:
            line.append_text(terminal.stacked_bar(spent, BAR)).append("  ")
        self._line(line.append(_largest(spent)))

    def _line(self, text: Text | Padding) -> None:
        self._print([text])


def _found(finding: Finding) -> Text:
    mark = Text("found  ", "bold").append(
        f"[{finding.severity}]", terminal.SEVERITY_STYLES.get(finding.severity, "")
    )
    return mark.append(f" {terminal.clean(finding.title, 160)}", "default")


def _difference(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: ns - before.get(name, 0) for name, ns in now.items()}


def _waits(process: Any) -> int:
    return max((row.count for row in process.operations if "Synchronize" in row.op), default=0)


def _largest(spent: Mapping[str, int]) -> str:
    total = sum(spent.values()) or 1
    name = max(spent, key=lambda each: spent[each], default="unexplained")
    return f"{100 * spent.get(name, 0) / total:.0f} % {bucket_words(name)}"


class Announced:
    """Another surface that is told when the trace begins, and what happens on the stage meanwhile."""

    def __init__(self, surface: Surface, begun: Callable[[], None], says: Callable[[float], str]) -> None:
        self.stop_requested = surface.stop_requested
        self.wants_records = surface.wants_records
        self.takes_the_screen = surface.takes_the_screen
        self.metric_limits = surface.metric_limits
        self.metric_prices = surface.metric_prices
        self.run, self.records, self.metrics = surface.run, surface.records, surface.metrics
        self.behind, self.starting = surface.behind, surface.starting
        self._surface, self._begun, self._says = surface, begun, says

    def begin(self, view: LiveView) -> None:
        self._surface.begin(self._with_words(view))
        self._begun()

    def update(self, view: LiveView) -> None:
        self._surface.update(self._with_words(view))

    def end(self, view: LiveView, exit_code: int) -> None:
        self._surface.end(view, exit_code)

    def _with_words(self, view: LiveView) -> LiveView:
        return replace(view, warnings=(self._says(view.elapsed_ns / 1e9), *view.warnings))
