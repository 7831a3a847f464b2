"""NCCL: communicators of every rank, collectives numbered, bytes in bytes."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any

import pytest

from ingero.attach import probes
from ingero.discover.preattach import preattach_candidates
from ingero.model.layout import CallFlag
from ingero.scenarios import cuda
from tests.ebpf.tracing import NAMES, Tracer, workload

pytestmark = pytest.mark.shapes
ALL_FUNCTIONS = True

RANKS = 3
ROUNDS = 2


def id_hash(unique: bytes) -> int:
    """As the kernel side computes it."""
    value = 0xCBF29CE484222325
    for word in struct.unpack("<16Q", unique):
        value = ((value ^ word) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


@pytest.fixture(scope="module")
def ranks(tracer: Tracer) -> dict[str, Any]:
    stub = {"LD_LIBRARY_PATH": str(cuda.stub_dir())}
    with tracer._lock:
        tracer.agent._targets.attach_ahead(preattach_candidates(["true"], stub))
    with workload("nccl_ranks.py", "--ranks", str(RANKS), "--rounds", str(ROUNDS)) as job:
        said = job.go()
        pids = sorted({made["pid"] for made in said})
        rows = tracer.calls(*pids)
    nccl = {number for name, (number, row) in probes.BY_NAME.items() if row.layer == "nccl"}
    return {"said": said, "rows": [row for row in rows if int(row["op"]) in nccl]}


def test_every_call_of_every_rank_has_its_record(ranks: dict[str, Any]) -> None:
    made: dict[int, list[str]] = defaultdict(list)
    seen: dict[int, list[str]] = defaultdict(list)
    for call in ranks["said"]:
        made[call["pid"]].append(call["function"])
    for row in ranks["rows"]:
        seen[int(row["h"]["pid"])].append(NAMES[int(row["op"])])
    assert len(made) == RANKS
    assert seen == made


def test_an_id_passed_by_value_gives_the_right_rank_size_and_hash(ranks: dict[str, Any]) -> None:
    inits = {
        int(row["h"]["pid"]): row for row in ranks["rows"] if NAMES[int(row["op"])] == "ncclCommInitRank"
    }
    said = [call for call in ranks["said"] if call["function"] == "ncclCommInitRank"]
    assert {call["rank"] for call in said} == set(range(RANKS))
    for call in said:
        row = inits[call["pid"]]
        assert row["flags"] & CallFlag.CALL_COMM_KNOWN
        assert int(row["rank"]) == call["rank"]
        assert int(row["nranks"]) == call["size"] == RANKS
        assert int(row["comm_hash"]) == id_hash(bytes.fromhex(call["id"]))


def test_collectives_carry_bytes_type_peer_communicator_and_number(ranks: dict[str, Any]) -> None:
    by_pid: dict[int, list[Any]] = defaultdict(list)
    for row in ranks["rows"]:
        by_pid[int(row["h"]["pid"])].append(row)
    for pid, rows in by_pid.items():
        said = [call for call in ranks["said"] if call["pid"] == pid]
        seqs = []
        for row, call in zip(rows, said, strict=True):
            name = NAMES[int(row["op"])]
            if "bytes" not in call:
                continue
            assert int(row["bytes"]) == call["bytes"], name
            assert int(row["rank"]) == call["rank"]
            assert int(row["comm_hash"]) == id_hash(bytes.fromhex(call["id"]))
            _, probe = probes.BY_NAME[name]
            assert int(row["args"][probe.comm]) == call["comm"]
            assert int(row["args"][probe.dtype]) & 0xFFFFFFFF == call["datatype"]
            if probe.peer is not None:
                assert int(row["args"][probe.peer]) & 0xFFFFFFFF == call.get("peer", call.get("root"))
            if name in ("ncclAllReduce", "ncclBroadcast"):
                seqs.append(int(row["seq"]))
        assert seqs == list(range(2 * ROUNDS))


def test_the_parts_of_a_split_share_a_hash_of_their_own(ranks: dict[str, Any]) -> None:
    rank_of = {call["pid"]: call["rank"] for call in ranks["said"]}
    splits = [row for row in ranks["rows"] if NAMES[int(row["op"])] == "ncclCommSplit"]
    colours: dict[int, set[int]] = defaultdict(set)
    for row in splits:
        colours[rank_of[int(row["h"]["pid"])] % 2].add(int(row["comm_hash"]))
    assert all(len(hashes) == 1 for hashes in colours.values())
    assert colours[0] != colours[1]
