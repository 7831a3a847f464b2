"""Messages of jobs, hostile ones among them."""

from __future__ import annotations

import pytest

from ingero.agent.annotations import LATE_NS, MAX_UNSENT, parse

NOW = 5_000_000_000_000


def said(labels: bytes, at_ns: int = NOW, pid: int = 0, unsent: int = 0) -> bytes:
    return b"ingero1 %d %d %d\n%s" % (at_ns, pid, unsent, labels)


def test_a_message_is_understood() -> None:
    found = parse(said(b"step=120\nepoch=3", NOW - 1_000, 42, 7), NOW)
    assert found is not None
    assert (found.at_ns, found.pid, found.unsent) == (NOW - 1_000, 42, 7)
    assert found.labels == {"step": "120", "epoch": "3"}


def test_an_empty_value_ends_a_label() -> None:
    found = parse(said(b"step="), NOW)
    assert found is not None
    assert found.labels == {"step": ""}


@pytest.mark.parametrize("at_ns", [0, NOW + 1, NOW - LATE_NS - 1, 9_999_999_999_999_999_999])
def test_a_clock_that_cannot_be_is_replaced_by_ours(at_ns: int) -> None:
    found = parse(said(b"step=1", at_ns), NOW)
    assert found is not None
    assert found.at_ns == NOW


def test_what_a_terminal_would_obey_is_taken_out() -> None:
    found = parse(said(b"request=\x1b[2Jhi\x07 \x00\xff\xfe\xe2\x80\xae there"), NOW)
    assert found is not None
    assert "\x1b" not in found.labels["request"]
    assert found.labels["request"].isprintable()
    assert "hi" in found.labels["request"]


def test_a_long_value_is_cut_and_a_lie_about_losses_bounded() -> None:
    found = parse(said(b"request=" + b"x" * 3_000, unsent=10**18), NOW)
    assert found is not None
    assert len(found.labels["request"]) == 128
    assert found.unsent == MAX_UNSENT


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"ingero2 1 0 0\nstep=1",
        b"ingero1 -1 0 0\nstep=1",
        b"ingero1 1 -2 0\nstep=1",
        b"ingero1 1 0\nstep=1",
        said(b""),
        said(b"step"),
        said(b"=1"),
        said(b"step=1\n"),
        said(b"st ep=1"),
        said(b"\x1b[0m=1"),
        said("\u0661=1".encode()),
        said(b"k" * 33 + b"=1"),
        said(b"\n".join(b"k%d=1" % number for number in range(17))),
        bytes(range(256)) * 8,
    ],
)
def test_what_is_no_message_is_refused_whole(raw: bytes) -> None:
    assert parse(raw, NOW) is None
