"""What can be found: every kind of problem, in the words of the module that looks for it.

Read from the detectors themselves, so that a page cannot say anything else than the code.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from ingero.correlate import account, activity, ledger, loss, pace, steps, timeline
from ingero.detectors import ALL, bound, judge, unwatched, verdict
from ingero.detectors.detector import Detector
from ingero.model.finding import SEVERITY_SHARES
from ingero.units import format_bytes, format_ns, format_rounded

PARTS = ("Shows as", "Proof", "Not this", "Blind to")
_PART = re.compile(rf"^({'|'.join(PARTS)}|Severity) {{2,}}(.*)$")
_CONSTANT = re.compile(r"^([A-Z][A-Z_]+) = [^\n#]*?(?:#\s*(.*))?$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of finding."""

    name: str
    title: str
    summary: str
    parts: dict[str, str]  # what PARTS name
    severity: str
    needs: tuple[str, ...]
    unwatched: str  # why nobody looks for it; empty: somebody does


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number that decides, and why it is what it is; empty where its name says it."""

    module: str
    name: str
    value: str
    reason: str


def entries() -> list[Entry]:
    """In the order of the catalogue."""
    return [_entry(detector) for detector in ALL]


def looked_for() -> list[Entry]:
    """What can be found."""
    return [each for each in entries() if not each.unwatched]


def not_looked_for() -> list[Entry]:
    """What people know and no finding will ever say, so far."""
    return [each for each in entries() if each.unwatched]


def module_of(detector: Detector) -> ModuleType:
    """Of one that is watched; the others are rows of a table."""
    return importlib.import_module(f"ingero.detectors.{detector.name.replace('-', '_')}")


def words_of(detector: Detector) -> str:
    """What is said of a detector where it is written."""
    return unwatched.TEXTS[detector.name] if detector.unwatched else module_of(detector).__doc__ or ""


def _entry(detector: Detector) -> Entry:
    summary, parts = described(words_of(detector))
    return Entry(
        detector.name, detector.title, summary, parts, _severity(detector, parts),
        tuple(sorted(detector.needs | detector.either)), detector.unwatched,
    )  # fmt: skip


def _severity(detector: Detector, parts: dict[str, str]) -> str:
    if detector.unwatched:
        return "none yet"
    if "Severity" in parts:
        return parts["Severity"].rstrip(".")
    said = [(name, least) for name, least in SEVERITY_SHARES if least >= detector.least_share]
    return "by wall time lost: " + ", ".join(f"{name} from {format_rounded(least)}" for name, least in said)


def described(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph of a detector's docstring, and its named parts."""
    opening, _, rest = inspect.cleandoc(text).partition("\n\n")
    parts: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        begins = _PART.match(line)
        if begins:
            name = begins[1]
        words = begins[2] if begins else line.strip()
        if name and words:
            parts[name] = f"{parts.get(name, '')} {words}".strip()
    return " ".join(opening.split()), parts


def thresholds() -> list[Threshold]:
    """Numbers of the modules that judge, in the order in which they are used."""
    watched = [detector for detector in ALL if not detector.unwatched]
    before = [pace, activity, account, verdict, bound, timeline, steps, loss, ledger, judge]
    modules = [*before, *map(module_of, watched)]
    return [each for module in modules for each in _thresholds_of(module)]


def _thresholds_of(module: ModuleType) -> Iterator[Threshold]:
    above: list[str] = []
    for line in inspect.getsource(module).splitlines():
        constant = _CONSTANT.match(line)
        if constant and isinstance(getattr(module, constant[1], None), int | float):
            name, reason = constant[1], constant[2] or " ".join(above)
            yield Threshold(module.__name__, name, _shown(name, getattr(module, name)), reason)
        above = [*above, line[1:].strip()] if line.startswith("#") else []


def _shown(name: str, value: float) -> str:
    if name.endswith("_PER_NS"):
        return f"{value:g} GB/s"
    if name.endswith("_NS"):
        return format_ns(value)
    if name.endswith("_BYTES"):
        return format_bytes(value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
