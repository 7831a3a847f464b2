"""attach/probes.py holds together, and names functions that exist."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ingero.attach import probes
from ingero.attach.probes import NO_ARG, ROWS, Row
from ingero.model.layout import Capacity, OpFlag
from ingero.model.operations import LAYER_SOURCE
from ingero.native.elf import find_symbols

ARGUMENT_FIELDS = (
    "bytes", "rows", "dtype", "stream", "out", "comm", "rank", "nranks", "device", "id",
    "text", "origin", "kernel",
)  # fmt: skip
RECORDED_FIELDS = ("kind_arg", "peer", "reduce")
REGISTERS = 6  # on x86-64, the processor with fewer
KEPT = 8  # arguments a record and the kernel side keep
STREAM_LIMIT = 16
OF_A_COMMUNICATOR = OpFlag.OP_COLLECTIVE | OpFlag.OP_FREE_COMM | OpFlag.OP_SPLIT_COMM
MAKES_A_HANDLE = OpFlag.OP_NEW_COMM | OpFlag.OP_NEW_CONTEXT
OF_A_DEVICE = OpFlag.OP_SET_DEVICE | OpFlag.OP_NEW_CONTEXT
# Functions older runtimes have and the newest does not.
GONE = {"cudaThreadSynchronize"}


def positions(row: Row) -> dict[str, int]:
    """The argument positions a row names."""
    values = {field: getattr(row, field) for field in (*ARGUMENT_FIELDS, *RECORDED_FIELDS)}
    return {field: value for field, value in values.items() if value not in (None, NO_ARG)}


def test_names_are_unique() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_numbers_fit_the_kernels_table() -> None:
    assert len(probes.kernel_table("x86_64")) <= Capacity.OPS
    assert [number for number, _ in probes.BY_NAME.values()] == list(range(1, len(ROWS) + 1))


def test_arguments_lie_where_the_kernel_side_can_read_them() -> None:
    assert [f"{row.name}.{field}" for row in ROWS for field in unreadable(row)] == []


def unreadable(row: Row) -> Iterator[str]:
    for field, position in positions(row).items():
        on_stack = position >= REGISTERS
        if field == "stream":  # read from the stack at the return
            readable = position < STREAM_LIMIT
        elif field in RECORDED_FIELDS:
            readable = position < KEPT and (not on_stack or row.arguments > position)
        else:  # beyond the registers, only rare operations are read at entry
            readable = position < KEPT and (not on_stack or (row.rare and row.arguments > position))
        if not readable or (row.arguments and position >= row.arguments):
            yield field


def test_every_row_is_consistent() -> None:
    assert [f"{row.name}: {why}" for row in ROWS for why in contradictions(row)] == []


def contradictions(row: Row) -> Iterator[str]:
    prefix = {"runtime": ("cuda", "__cuda"), "driver": "cu", "graph": "cu", "nccl": "nccl"} | {
        "python": tuple(row.name for row in probes.PYTHON)
    }
    prefix = prefix[row.layer]
    needs = (
        (row.layer in LAYER_SOURCE and row.name.startswith(prefix), "a layer its name belongs to"),
        (row.rows == NO_ARG or row.bytes != NO_ARG, "rows of something"),
        (row.stream_at == NO_ARG or row.stream != NO_ARG, "a structure the stream is in"),
        (not (row.hot and row.rare), "to be hot or rare"),
        (not (row.quiet and row.rare), "to be quiet or rare"),
        (not row.flags & OpFlag.OP_TYPED_COUNT or NO_ARG not in (row.bytes, row.dtype), "count and type"),
        (not row.flags & OF_A_COMMUNICATOR or row.comm != NO_ARG, "a communicator"),
        (not row.flags & MAKES_A_HANDLE or row.out != NO_ARG, "somewhere the handle is written"),
        (row.text == row.origin == NO_ARG or row.out != NO_ARG, "somewhere the named handle is written"),
        (row.kernel in (0, 1, NO_ARG), "its kernel among the first two arguments"),
        (not row.flags & OF_A_DEVICE or row.device != NO_ARG, "a device"),
    )
    yield from (f"needs {what}" for holds, what in needs if not holds)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_kernels_table_says_what_the_rows_say(machine: str) -> None:
    table = probes.kernel_table(machine)
    assert table["bytes_arg"][1:].tolist() == [row.bytes for row in ROWS]
    assert table["stream_arg"][1:].tolist() == [row.stream for row in ROWS]
    synchronising = (table["flags"][1:] & np.uint32(OpFlag.OP_SYNC)) > 0
    assert synchronising.tolist() == [row.sync for row in ROWS]


@pytest.fixture(scope="module")
def cudart() -> str:
    """The real runtime, from the nvidia-cuda-runtime wheel."""
    found = [path for folder in sys.path for path in Path(folder).glob("nvidia/*/lib/libcudart.so*")]
    assert found, "nvidia-cuda-runtime is not installed: make setup"
    return str(found[0])


def test_the_real_runtime_has_every_function_we_trace_in_it(cudart: str) -> None:
    wanted = {row.name for row in probes.RUNTIME} - GONE
    assert wanted - set(find_symbols(cudart, wanted)) == set()


def test_the_real_runtime_has_per_thread_stream_functions_of_the_table(cudart: str) -> None:
    wanted = {row.name for row in ROWS if row.name.startswith("cuda") and row.name.endswith("_ptsz")}
    found = set(find_symbols(cudart, wanted))
    assert {"cudaLaunchKernel_ptsz", "cudaMemcpyAsync_ptsz", "cudaStreamSynchronize_ptsz"} <= found
