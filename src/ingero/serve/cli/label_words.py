"""What jobs said of themselves, in a diagnosis: the steps a finding touches, the slowest steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingero import units
from ingero.model.finding import LabelRange
from ingero.model.report import LabelReport, LabelTime
from ingero.model.words import bucket_words
from ingero.serve.answers.shares import percents
from ingero.serve.cli.document import Block, Gap, Heading, Line, Rows, tidy

SHOWN = 10
LARGEST = 3


def labels_words(labels: Sequence[LabelRange]) -> str:
    """`step 118 to 131, epoch 3`."""
    return ", ".join(map(_range, labels))


def _range(label: LabelRange) -> str:
    first, last = tidy(label.first, 40), tidy(label.last, 40)
    if label.count == 1:
        return f"{tidy(label.key, 40)} {first}"
    return f"{tidy(label.key, 40)} {first} to {last} ({units.format_count(label.count)} of them)"


def slowest(by: LabelReport, verbose: bool = False) -> Iterator[Block]:
    """Each with where its time went."""
    key = tidy(by.key, 40)
    shown = by.values if verbose else by.values[:SHOWN]
    yield Heading(
        f"By {key}: {units.format_count(by.count)}, half of them within {units.format_ns(by.usual_ns)}"
    )
    yield Rows((key, "Took", "Where the time went", "Seen in it"), list(map(_row, shown)), left=(0, 2))
    if by.count > len(shown):
        yield Line(f"and {units.format_count(by.count - len(shown))} more, -v shows more of them", "dim")
    yield Line(
        "Seen in it: calls and waits with an instant of their own; the rest is spread over its second.", "dim"
    )
    yield Gap()


def _row(each: LabelTime) -> tuple[str, ...]:
    largest = percents(each.time, decimals=0)[:LARGEST] if any(each.time.values()) else []
    words = ", ".join(f"{bucket_words(tidy(name, 40))} {percent:.0f} %" for name, percent in largest)
    return (
        tidy(each.value, 60),
        units.format_ns(each.took_ns),
        words or "-",
        units.format_share(each.located_share),
    )
