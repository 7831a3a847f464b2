"""Where real NCCL libraries keep what of a communicator, told by their own functions.

The bytes are those of the wheels nvidia-nccl-cu12 and -cu13: how the functions begin, and the load
and store that they end in; what lies between checks their arguments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingero.discover import communicator_layout
from ingero.discover.communicator_layout import CommLayout, UnknownLayoutError, layout_of
from ingero.native.elf import EM_AARCH64, EM_X86_64
from ingero.scenarios import cuda

# push %rbp; ...; mov %rsi,%r13; ...; mov %rdi,%r12, as up to 2.27, and r14, r13 since
R12 = (EM_X86_64, "554889e541554989f541544989fc5348")
R13 = (EM_X86_64, "554889e541564989f641554989fd4154")
ARM64 = (EM_AARCH64, "fd7bbaa9fd030091f35301a9f4630191f55b02a9f60300aaf76303a9f70301aa")
# Version, how the functions begin, where the rank is, ncclGetVersion, then the three functions' ends.
WHEELS = (
    (
        "2.16.5-cu12",
        R12,
        0x17B8,
        "c70765540000",
        "418b8424b817000031db41894500e9",
        "418b8424bc17000031db41894500e9",
        "418b8424c017000031db41894500e9",
    ),
    (
        "2.18.1-cu12",
        R12,
        0x23D8,
        "c70729550000",
        "418b8424d823000031db41894500e9",
        "418b8424dc23000031db41894500e9",
        "418b8424e023000031db41894500e9",
    ),
    (
        "2.19.3-cu12",
        R12,
        0x24D8,
        "c7078f550000",
        "418b8424d824000031db41894500e9",
        "418b8424dc24000031db41894500e9",
        "418b8424e024000031db41894500e9",
    ),
    (
        "2.21.5-cu12",
        R12,
        0x34E0,
        "c70759560000",
        "418b8424e034000031db41894500e9",
        "418b8424e434000031db41894500e9",
        "418b8424e834000031db41894500e9",
    ),
    (
        "2.23.4-cu12",
        R12,
        0x3C4A8,
        "c70720570000",
        "418b8424a8c4030031db41894500e9",
        "418b8424acc4030031db41894500e9",
        "418b8424b0c4030031db41894500e9",
    ),
    (
        "2.26.2-cu12",
        R12,
        0x784B8,
        "c7074a580000",
        "418b8424b884070031db41894500e9",
        "418b8424bc84070031db41894500e9",
        "418b8424c084070031db41894500e9",
    ),
    (
        "2.27.3-cu12",
        R12,
        0x1044B8,
        "c707af580000",
        "418b8424b844100031db41894500e9",
        "418b8424bc44100031db41894500e9",
        "418b8424c044100031db41894500e9",
    ),
    (
        "2.28.9-cu12",
        R13,
        0x1044D0,
        "c70719590000",
        "418b85d044100031db418906e986",
        "418b85d444100031db418906e986",
        "418b85d844100031db418906e986",
    ),
    (
        "2.27.7-cu13",
        R12,
        0x1044B8,
        "c707b3580000",
        "418b8424b844100031db41894500e9",
        "418b8424bc44100031db41894500e9",
        "418b8424c044100031db41894500e9",
    ),
    (
        "2.28.9-cu13",
        R13,
        0x1044D0,
        "c70719590000",
        "418b85d044100031db418906e986",
        "418b85d444100031db418906e986",
        "418b85d844100031db418906e986",
    ),
    (
        "2.30.7-cu13",
        R13,
        0x1206F0,
        "c707df590000",
        "418b85f006120031db418906e996",
        "418b85f406120031db418906e996",
        "418b85f806120031db418906e996",
    ),
    (
        "2.32.3-cu13",
        R13,
        0x1206E8,
        "c707a35a0000",
        "418b85e806120031db418906e9b2",
        "418b85ec06120031db418906e9b2",
        "418b85f006120031db418906e9b2",
    ),
    (
        "2.28.9-cu12",
        ARM64,
        0x1044D0,
        "22238b5200008052220000b9",
        "d612449113008052c0d244b9e00200b9",
        "d612449113008052c0d644b9e00200b9",
        "d612449113008052c0da44b9e00200b9",
    ),
)
FUNCTIONS = ("ncclCommUserRank", "ncclCommCount", "ncclCommCuDevice")


def code_of(begin: str, version: str, *ends: str) -> dict[str, bytes]:
    found = {name: bytes.fromhex(begin + end) for name, end in zip(FUNCTIONS, ends, strict=True)}
    return {**found, "ncclGetVersion": bytes.fromhex(version)}


@pytest.mark.parametrize("wheel", WHEELS, ids=lambda wheel: f"{wheel[0]}-{wheel[1][0]}")
def test_every_version_says_itself_where_rank_size_and_hash_are(wheel: tuple[Any, ...]) -> None:
    name, (machine, begin), rank_at, version, *ends = wheel
    major, minor, patch = (int(part) for part in name.partition("-")[0].split("."))
    found = layout_of(code_of(begin, version, *ends), machine)
    assert found.version == major * 10000 + minor * 100 + patch
    assert (found.rank_at, found.hash_at) == (rank_at, int(rank_at) - 8)
    assert found.magic == (communicator_layout.MAGIC if minor >= 21 else 0)


def sound() -> dict[str, bytes]:
    _, (_, begin), _, version, *ends = WHEELS[-2]
    return code_of(begin, version, *ends)


@pytest.mark.parametrize("name", [*FUNCTIONS, "ncclGetVersion"])
def test_a_library_without_one_of_the_functions_is_not_believed(name: str) -> None:
    code = sound()
    del code[name]
    with pytest.raises(UnknownLayoutError, match=name):
        layout_of(code, EM_X86_64)


def test_fields_that_do_not_lie_side_by_side_are_not_believed() -> None:
    code = sound()
    code["ncclCommCount"] = code["ncclCommCuDevice"]
    with pytest.raises(UnknownLayoutError, match="side by side"):
        layout_of(code, EM_X86_64)


def test_a_function_that_could_mean_two_fields_means_none() -> None:
    code = sound()
    code["ncclCommUserRank"] += code["ncclCommCount"]
    with pytest.raises(UnknownLayoutError, match="side by side"):
        layout_of(code, EM_X86_64)


def test_a_version_before_the_oldest_known_is_not_believed() -> None:
    code = {**sound(), "ncclGetVersion": bytes.fromhex("c707" + (20800).to_bytes(4, "little").hex())}
    with pytest.raises(UnknownLayoutError, match="20800"):
        layout_of(code, EM_X86_64)


@pytest.mark.parametrize("machine", [EM_X86_64, EM_AARCH64, 243])
@pytest.mark.parametrize("code", [b"", b"\x8b", bytes(800), b"\x41\x8b\x84" * 300, b"\xff" * 700])
def test_code_that_says_nothing_is_not_believed(code: bytes, machine: int) -> None:
    with pytest.raises(UnknownLayoutError):
        layout_of(dict.fromkeys((*FUNCTIONS, "ncclGetVersion"), code), machine)


def test_a_file_is_asked_and_one_without_communicators_says_none() -> None:
    found = communicator_layout.read_layout(cuda.stub_dir() / "libnccl.so.2")
    assert isinstance(found, CommLayout)
    assert found.magic == communicator_layout.MAGIC
    assert communicator_layout.read_layout(Path(cuda.stub_dir()) / "libcuda.so.1") is None
