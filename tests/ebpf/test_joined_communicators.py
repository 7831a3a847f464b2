"""NCCL of a job that ran before the trace began: the communicators say themselves who they are."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from ingero.attach import probes
from ingero.model.layout import CallFlag
from tests.ebpf.test_nccl import id_hash
from tests.ebpf.tracing import NAMES, tracing, workload

pytestmark = pytest.mark.shapes
ALL_FUNCTIONS = True

RANKS = 3
ROUNDS = 2
NCCL = [number for number, row in probes.BY_NAME.values() if row.layer == "nccl"]


@pytest.fixture(scope="module")
def ranks() -> dict[str, Any]:
    flags = ("--early", "--ranks", str(RANKS), "--rounds", str(ROUNDS))
    with workload("nccl_ranks.py", *flags) as job, tracing() as tracer:
        said = job.go()
        rows = tracer.calls(*{call["pid"] for call in said})
        blind = [each for window in tracer.windows for each in window.not_watched if each.what == "nccl"]
    return {"said": said, "rows": rows[np.isin(rows["op"], NCCL)], "blind": blind}


def test_every_rank_of_a_communicator_made_before_has_its_rank_size_and_hash(ranks: dict[str, Any]) -> None:
    said = {call["pid"]: call for call in ranks["said"]}
    whole = {call["pid"]: call["comm"] for call in ranks["said"] if call.get("bytes")}
    seen = set()
    for row in ranks["rows"]:
        _, probe = probes.BY_NAME[NAMES[int(row["op"])]]
        pid = int(row["h"]["pid"])
        if probe.kind == "collective" and int(row["args"][probe.comm]) == whole[pid]:
            seen.add(pid)
            assert row["flags"] & CallFlag.CALL_COMM_KNOWN
            assert int(row["rank"]) == said[pid]["rank"]
            assert int(row["nranks"]) == RANKS
            assert int(row["comm_hash"]) == id_hash(bytes.fromhex(said[pid]["id"]))
    assert len(seen) == RANKS
    assert ranks["blind"] == []


def test_numbers_of_a_joined_communicator_are_not_taken_for_those_of_other_ranks(
    ranks: dict[str, Any],
) -> None:
    collectives = [
        row for row in ranks["rows"] if NAMES[int(row["op"])] in ("ncclAllReduce", "ncclBroadcast")
    ]
    assert len(collectives) == RANKS * (2 * ROUNDS + 1)
    assert all(row["flags"] & CallFlag.CALL_COMM_JOINED for row in collectives)


def test_a_split_made_before_has_a_hash_of_its_own(ranks: dict[str, Any]) -> None:
    """And so have those made while we look, of a parent we did not see being made."""
    rank_of = {call["pid"]: call["rank"] for call in ranks["said"]}
    halves = {call["pid"]: call["comm"] for call in ranks["said"] if "comm" in call and "bytes" not in call}
    whole = {id_hash(bytes.fromhex(call["id"])) for call in ranks["said"]}
    parts: dict[tuple[str, int], set[tuple[int, int]]] = defaultdict(set)
    for row in ranks["rows"]:
        name, pid = NAMES[int(row["op"])], int(row["h"]["pid"])
        if name == "ncclCommSplit" or (name == "ncclAllReduce" and int(row["args"][5]) == halves[pid]):
            assert int(row["rank"]) == rank_of[pid] // 2
            parts[name, rank_of[pid] % 2].add((int(row["comm_hash"]), int(row["nranks"])))
    assert sorted(parts) == [
        ("ncclAllReduce", 0),
        ("ncclAllReduce", 1),
        ("ncclCommSplit", 0),
        ("ncclCommSplit", 1),
    ]
    assert all(len(each) == 1 for each in parts.values())
    hashes = {hash for each in parts.values() for hash, _ in each}
    assert len(hashes) == 4
    assert not hashes & whole
    assert {size for (_, colour), each in parts.items() if colour == 0 for _, size in each} == {2}


@pytest.mark.parametrize("kind", ["torn", "no-magic", "rank-too-large", "no-ranks", "device", "no-hash"])
def test_what_cannot_be_a_communicator_is_unknown_and_said(kind: str) -> None:
    with workload("stray_comms.py", kind) as job, tracing(pids=(job.pid,)) as tracer:
        (called,) = job.go()
        rows = tracer.calls(job.pid)
        (row,) = [each for each in rows if NAMES[int(each["op"])] == "ncclAllReduce"]
        assert int(row["args"][5]) == called["comm"]
        assert not row["flags"] & CallFlag.CALL_COMM_KNOWN
        assert (int(row["rank"]), int(row["nranks"]), int(row["comm_hash"])) == (-1, -1, 0)
        told = [each for window in tracer.windows for each in window.not_watched if each.what == "nccl"]
        assert [each.pid for each in told] == [job.pid]
        assert "cannot be right" in told[0].why


def test_what_lies_like_a_communicator_is_taken_for_one() -> None:
    """The stray ones of the test above differ from this in one thing each."""
    with workload("stray_comms.py", "sound") as job, tracing(pids=(job.pid,)) as tracer:
        job.go()
        (row,) = [each for each in tracer.calls(job.pid) if NAMES[int(each["op"])] == "ncclAllReduce"]
        assert row["flags"] & CallFlag.CALL_COMM_KNOWN
        assert (int(row["rank"]), int(row["nranks"]), int(row["comm_hash"])) == (2, 3, 0x1234)
