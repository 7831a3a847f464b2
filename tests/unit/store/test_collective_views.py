from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingero.model.layout import CallFlag
from tests.builders import call, records, window

Ask = Callable[..., list[dict[str, Any]]]


def test_a_collective_carries_names_not_numbers(ask: Ask) -> None:
    (row,) = ask(
        "SELECT * FROM nccl_events",
        window(
            calls=call(
                "ncclAllReduce",
                bytes=64,
                args=(1, 2, 32, 9, 4),
                comm_hash=0xF00D << 48,
                seq=3,
                rank=1,
                nranks=8,
            )
        ),
    )
    assert (row["comm_hash"], row["seq"], row["rank"], row["nranks"]) == ("f00d000000000000", 3, 1, 8)
    assert (row["datatype"], row["reduce_op"], row["peer"], row["bytes"]) == ("bfloat16", "avg", None, 64)


def test_the_weights_of_collectives_count_their_calls(ask: Ask) -> None:
    seen = records(call("ncclAllReduce", weight=40), call("ncclAllReduce", weight=2))
    assert ask("SELECT COUNT(*) AS rows, SUM(weight) AS calls FROM nccl_events", window(calls=seen)) == [
        {"rows": 2, "calls": 42}
    ]


def test_a_send_has_a_peer(ask: Ask) -> None:
    (row,) = ask(
        "SELECT * FROM nccl_events",
        window(calls=call("ncclSend", args=(1, 2, 6, 5), comm_hash=1, rank=0, nranks=8)),
    )
    assert (row["peer"], row["datatype"], row["reduce_op"], row["wait_ns"]) == (5, "float16", None, None)


def test_an_unknown_communicator_is_null(ask: Ask) -> None:
    (row,) = ask("SELECT * FROM nccl_events", window(calls=call("ncclAllReduce")))
    assert [row[name] for name in ("comm_hash", "seq", "rank", "nranks", "wait_ns")] == [None] * 5


def test_a_collective_counted_from_when_we_came_has_no_number(ask: Ask) -> None:
    """Another rank's was counted from another moment: only the communicator is the same."""
    joined = int(CallFlag.CALL_COMM_JOINED)
    seen = [
        call(
            "ncclAllReduce", at_ns=rank, comm_hash=7, seq=0, rank=rank, nranks=2, flags=joined, pid=100 + rank
        )
        for rank in (0, 1)
    ]
    rows = ask(
        "SELECT comm_hash, rank, nranks, seq, wait_ns FROM nccl_events ORDER BY rank", window(calls=seen)
    )
    assert [tuple(row.values()) for row in rows] == [(f"{7:016x}", rank, 2, None, None) for rank in (0, 1)]


def test_a_rank_without_a_common_name_is_told_without_one(ask: Ask) -> None:
    (row,) = ask(
        "SELECT * FROM nccl_events", window(calls=call("ncclAllReduce", comm_hash=0, rank=1, nranks=4))
    )
    assert [row[name] for name in ("comm_hash", "seq", "rank", "nranks")] == [None, None, 1, 4]


def _arrivals(*at_ns: int, nranks: int, seq: int = 0) -> Any:
    return [
        call("ncclAllReduce", at_ns=at, comm_hash=7, seq=seq, rank=rank, nranks=nranks, pid=100 + rank)
        for rank, at in enumerate(at_ns)
    ]


def test_a_rank_waits_for_the_last_to_arrive(ask: Ask) -> None:
    rows = ask(
        "SELECT rank, wait_ns FROM nccl_events ORDER BY rank", window(calls=_arrivals(10, 250, 40, nranks=3))
    )
    assert [row["wait_ns"] for row in rows] == [240, 0, 210]


def test_ranks_seen_in_different_windows_are_matched(ask: Ask) -> None:
    first, second = _arrivals(10, 2_000_000_000, nranks=2)
    rows = ask(
        "SELECT wait_ns FROM nccl_events ORDER BY rank",
        window(calls=first),
        window(1_000_000_000, calls=second),
    )
    assert [row["wait_ns"] for row in rows] == [1_999_999_990, 0]


def test_nobody_knows_how_long_when_a_rank_was_not_seen(ask: Ask) -> None:
    rows = ask("SELECT wait_ns FROM nccl_events", window(calls=_arrivals(10, 20, nranks=3)))
    assert [row["wait_ns"] for row in rows] == [None, None]


def test_a_rank_seen_twice_does_not_stand_for_two(ask: Ask) -> None:
    twice = [call("ncclAllReduce", at_ns=n, comm_hash=7, seq=0, rank=1, nranks=2) for n in (1, 2)]
    assert [row["wait_ns"] for row in ask("SELECT wait_ns FROM nccl_events", window(calls=twice))] == [
        None,
        None,
    ]
