"""Kinds that people know and nobody looks for yet, in one table: nothing recorded shows them.

A row becomes a file of its own when there is something to see it by.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingero.detectors.detector import Detector
from ingero.model.words import KINDS


@dataclass(frozen=True, slots=True)
class Unwatched:
    """`why`: what is missing to see it."""

    name: str
    summary: str
    proof: str
    not_this: str
    why: str

    def text(self) -> str:
        """As the docstrings of detectors are."""
        shows = KINDS[self.name]
        shows = f"{shows[0].lower()}{shows[1:]}"
        return (
            f"{self.summary}\n\nShows as   {shows}.\nProof      {self.proof}.\n"
            f"Not this   {self.not_this}.\nBlind to   everything, so far: {self.why}."
        )


TABLE = (
    Unwatched(
        "managed-thrash",
        "Managed-memory thrash: pages of managed memory move between host and GPU all the time.",
        "faults of managed memory, which the driver serves",
        "first touches of managed memory",
        "the driver's page faults are not recorded yet",
    ),
    Unwatched(
        "kv-cache-pressure",
        "KV-cache pressure: the serving engine preempts requests because its cache is full.",
        "the engine's preemptions and cache usage",
        "a queue that is long for lack of compute (head-of-line)",
        "serving engines' own metrics are not read yet",
    ),
    Unwatched(
        "head-of-line",
        "Head-of-line blocking: long requests hold up short ones in a serving engine.",
        "waiting requests behind a running one",
        "an engine that has no requests",
        "serving engines' own metrics are not read yet",
    ),
)
TEXTS = {each.name: each.text() for each in TABLE}
DETECTORS = {each.name: Detector(each.name, frozenset({"calls"}), unwatched=each.why) for each in TABLE}
