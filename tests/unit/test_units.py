from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero import units
from ingero.errors import UsageError


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("90s", 90),
        ("5m", 300),
        ("5min", 300),
        ("1h", 3600),
        ("2d", 172_800),
        ("1w", 604_800),
        ("3d12h", 302_400),
        ("250ms", 0.25),
        ("1.5h", 5400),
        (" 1H ", 3600),
        ("0s", 0),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds * 1_000_000_000


@pytest.mark.parametrize(
    "text", ["", "5", "m", "5x", "-5m", "5m ago", "1e5s", "5m,3s", "9" * 18 + "w", "٣s3"]
)
def test_a_duration_that_makes_no_sense_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        units.parse_duration(text)
    assert raised.value.hint


@pytest.mark.parametrize(
    "text, count",
    [
        ("500m", 500 << 20),
        ("10g", 10 << 30),
        ("0", 0),
        ("1.5k", 1536),
        ("2GiB", 2 << 30),
        ("7", 7),
        ("3MB", 3 << 20),
    ],
)
def test_sizes_are_read_in_powers_of_two(text: str, count: int) -> None:
    assert units.parse_size(text) == count


@pytest.mark.parametrize("text", ["", "g", "-1", "10x", "1 000", "9" * 18 + "t"])
def test_a_size_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_size(text)


@pytest.mark.parametrize(
    "ns, text",
    [
        (5_200, "5.2 µs"),
        (1_200_000, "1.2 ms"),
        (64, "64 ns"),
        (0, "0 ns"),
        (999_960, "1 ms"),
        (12_345_678, "12.3 ms"),
        (345_000_000, "345 ms"),
        (90_000_000_000, "90 s"),
        (150_000_000_000, "2.5 min"),
        (None, "-"),
        (7_200_000_000_000, "2 h"),
        (-5_200, "-5.2 µs"),
    ],
)
def test_times_show_the_unit_that_fits(ns: float | None, text: str) -> None:
    assert units.format_ns(ns) == text


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("5", (5,)),
        ("", ()),
        (None, ()),
        ("x,-3,2-,1", (1, 2)),
        ("0-9999999", tuple(range(units.MOST_CPUS + 1))),
        ("99999999999999999999", ()),
        ("0-1," * 100_000, (0, 1)),
    ],
)
def test_cores_are_read_as_the_kernel_lists_them(text: str | None, cpus: tuple[int, ...]) -> None:
    assert units.cpus_of(text) == cpus


@given(st.sets(st.integers(0, 500)))
def test_cores_are_listed_as_they_were_read(cpus: set[int]) -> None:
    assert units.cpus_of(units.format_cpus(sorted(cpus))) == tuple(sorted(cpus))


def test_counts_sizes_and_shares() -> None:
    assert units.format_count(11028) == "11,028"
    assert units.format_bytes(1536) == "1.5 KiB"
    assert units.format_bytes(3 << 30) == "3 GiB"
    assert units.format_share(0.0421) == "4.2 %"
    assert units.format_share(0.0000001) == "<0.1 %"
    assert units.format_share(None) == "-"


def test_escape_sequences_of_a_hostile_process_name_are_gone() -> None:
    assert units.clean("\x1b[31mevil\x1b]0;title\x07\x00\x9b2J name") == "evil 2J name"
    assert units.clean(b"python\0garbage") == "python"
    assert units.clean(b"caf\xff") == "caf\ufffd"
    assert units.clean("a\u202eb\u200bc") == "a b c"


@given(st.text(), st.integers(1, 50))
def test_cleaned_text_is_printable_short_and_stays_clean(text: str, limit: int) -> None:
    once = units.clean(text, limit)
    assert len(once) <= limit
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in once)
    assert units.clean(once, limit) == once
    once.encode()


@given(st.text(st.characters(), max_size=300))
def test_visible_text_keeps_its_length_and_can_be_written(text: str) -> None:
    shown = units.visible(text)
    assert len(shown) == len(text)
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
    assert units.visible("a\x1b\u202e\ud800é") == "a\ufffd\ufffd\ufffdé"
    shown.encode()


@given(st.integers(0, 10**17))
def test_every_duration_can_be_shown(ns: int) -> None:
    assert units.format_ns(ns)
