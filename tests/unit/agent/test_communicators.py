"""What the kernel side is told of a process's NCCL, and what is said where nothing could be read."""

from __future__ import annotations

from pathlib import Path

from ingero.agent.communicators import Communicators
from ingero.discover import communicator_layout
from ingero.discover.libraries import Library
from ingero.model.layout import CommState
from ingero.scenarios import cuda
from tests.builders import OPERATIONS, call, records

from .fakes import Here


def library(path: Path, inode: int = 1, kind: str = "nccl") -> Library:
    return Library(str(path), str(path), 1, inode, kind)  # type: ignore[arg-type]


def test_a_library_that_says_where_things_lie_is_believed() -> None:
    row = Communicators(OPERATIONS, Here()).describe(7, [library(cuda.stub_dir() / "libnccl.so.2")])
    assert row["state"] == CommState.COMMS_READABLE
    assert row["hash_at"] == row["rank_at"] - 8
    assert row["magic"] == communicator_layout.MAGIC


def test_of_a_process_without_nccl_nothing_is_told() -> None:
    stub = cuda.stub_dir()
    others = [library(stub / "libcudart.so.12", 2, "runtime"), library(stub / "libcuda.so.1", 3, "static")]
    assert Communicators(OPERATIONS, Here()).describe(7, others)["state"] == CommState.COMMS_NOT_TOLD


def test_a_library_that_cannot_be_opened_yet_is_asked_again(tmp_path: Path) -> None:
    """It was seen while it was being loaded."""
    known, path = Communicators(OPERATIONS, Here()), tmp_path / "libnccl.so.2"
    assert known.describe(7, [library(path)])["state"] == CommState.COMMS_NOT_TOLD
    path.symlink_to(cuda.stub_dir() / "libnccl.so.2")
    assert known.describe(7, [library(path)])["state"] == CommState.COMMS_READABLE


def hide(name: bytes, path: Path) -> Path:
    """A copy of the stub's NCCL without one of its functions."""
    whole = (cuda.stub_dir() / "libnccl.so.2").read_bytes()
    path.write_bytes(whole.replace(name + b"\0", name[:-1] + b"X\0"))
    return path


def test_communicators_nothing_is_known_of_are_told_once_for_each_process(tmp_path: Path) -> None:
    known = Communicators(OPERATIONS, Here())
    row = known.describe(7, [library(hide(b"ncclCommCuDevice", tmp_path / "libnccl.so.2"))])
    assert row["state"] == CommState.COMMS_UNREADABLE
    calls = records(call("ncclAllReduce", pid=7), call("ncclAllReduce", pid=7), call("cudaFree", pid=8))
    (told,) = known.unread(calls)
    assert (told.pid, told.what) == (7, "nccl")
    assert "no ncclCommCuDevice" in told.why
    assert known.unread(calls) == []
    assert known.unread(records(call("ncclAllReduce", pid=7, comm_hash=5, rank=0, nranks=2))) == []


def test_two_libraries_that_keep_things_differently_are_not_guessed_between(tmp_path: Path) -> None:
    known = Communicators(OPERATIONS, Here())
    both = [
        library(cuda.stub_dir() / "libnccl.so.2"),
        library(hide(b"ncclCommCuDevice", tmp_path / "libnccl.so.2"), 2),
    ]
    assert known.describe(7, both)["state"] == CommState.COMMS_UNREADABLE
    (told,) = known.unread(call("ncclAllReduce", pid=7))
    assert "several NCCL libraries" in told.why
