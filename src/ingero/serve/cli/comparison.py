"""`explain --compare` as a document: step time, buckets, findings, promise and result."""

from __future__ import annotations

from collections.abc import Iterator

from ingero import units
from ingero.model.words import DROPPED, bucket_words
from ingero.serve import terminal
from ingero.serve.answers.compare import Comparison, FindingChange, Side
from ingero.serve.cli.diagnosis import person
from ingero.serve.cli.document import Block, Document, Field, Gap, Heading, Line, Rows, Title, tidy

STATUS_WORDS = {"gone": "gone", "still-there": "still there", "new": "new"}
TONES = {"gone": "good", "still-there": "warning", "new": "warning"}


def comparison(answer: Comparison) -> Document:
    """What `ingero explain --compare` prints."""
    document = Document("Before and after")
    document.add(Title("Before and after"))
    document.add(_side("Before", answer.before), _side("After", answer.after), Gap())
    document.add(*_steps(answer), Gap())
    document.add(*_buckets(answer), Gap())
    document.add(*_findings(answer.findings), Gap(), *_gain(answer), *_caveats(answer))
    return document


def _side(label: str, side: Side) -> Field:
    length = units.format_ns(side.window.to_ns - side.window.from_ns)
    who = person(side.comm, side.pid) if side.comm is not None else "no CUDA process"
    when = terminal.local_time(side.window.from_ns)
    return Field(label, f"{tidy(side.db, 200)}: {who} on {tidy(side.node, 80)}, {when} for {length}")


def _steps(answer: Comparison) -> Iterator[Block]:
    before, after = answer.before.step, answer.after.step
    if before is None or after is None:
        missing = [
            name for name, side in (("before", answer.before), ("after", answer.after)) if side.step is None
        ]
        yield Line(f"No step was found {' and '.join(missing)}: only shares can be compared.", "warning")
        return
    yield Field(
        "Step", f"{units.format_ns(before.now_ns)} → {units.format_ns(after.now_ns)}{_change(answer)}"
    )


def _change(answer: Comparison) -> str:
    share = answer.gain.real_share
    if share is None:
        return ""
    return f" ({units.format_share(abs(share))} {'less' if share >= 0 else 'more'})"


def _buckets(answer: Comparison) -> Iterator[Block]:
    by_step = any(row.before_step_ns is not None and row.after_step_ns is not None for row in answer.buckets)
    columns = ["Where the time went", "Before", "After"]
    columns += ["Before, per step", "After, per step"] if by_step else []
    rows = []
    for row in answer.buckets:
        cells = [bucket_words(tidy(row.bucket, 40))]
        cells += [units.format_share(row.before_share), units.format_share(row.after_share)]
        cells += [units.format_ns(row.before_step_ns), units.format_ns(row.after_step_ns)] if by_step else []
        rows.append(cells)
    if rows:
        yield Rows(columns, rows)
    else:
        yield Line("No time was accounted on either side.", "warning")


def _findings(changes: list[FindingChange]) -> Iterator[Block]:
    if not changes:
        yield Line("No problem found, before or after.", "good")
    for change in changes:
        finding = change.after or change.before
        if finding is None:
            continue
        before = change.before.effect.wall_share if change.before else None
        after = change.after.effect.wall_share if change.after else None
        status = STATUS_WORDS.get(change.status, tidy(change.status, 20))
        yield Heading(f"{tidy(finding.title, 160)}: {status}", finding.severity)
        words = f"{_lost(before, change.before is not None)} → {_lost(after, change.after is not None)}"
        promised = (
            f"; promised to win {units.format_share(change.promised_share)}" if change.promised_share else ""
        )
        yield Field("Time lost", words + promised, TONES.get(change.status, "plain"))


def _lost(share: float | None, found: bool) -> str:
    return units.format_share(share) if found else "none"


def _gain(answer: Comparison) -> Iterator[Block]:
    gain = answer.gain
    if gain.promised_share is None and gain.real_share is None:
        return
    promised = gain.promised_share
    also = "" if promised is None else f"; what is gone promised {units.format_share(promised)}"
    real = "not known" if gain.real_share is None else units.format_share(gain.real_share)
    yield Field("Gain", f"{real} of the step time{also}")


def _caveats(answer: Comparison) -> Iterator[Block]:
    """What could not be seen: once where it is the same on both sides."""
    before, after = list(_unseen(answer.before)), list(_unseen(answer.after))
    sides = (("Not seen", before),) if before == after else (("Before", before), ("After", after))
    for label, words in sides:
        if words:
            yield Field(label, ("" if before == after else "not seen: ") + "; ".join(words), "warning")


def _unseen(side: Side) -> Iterator[str]:
    if side.lost:
        yield f"{units.format_count(side.lost)} records {DROPPED}"
    by_reason: dict[str, list[str]] = {}
    for each in side.not_watched:
        by_reason.setdefault(tidy(each.why, 200), []).append(tidy(each.what, 100))
    for why, what in by_reason.items():
        yield f"{', '.join(what)} ({why})"
