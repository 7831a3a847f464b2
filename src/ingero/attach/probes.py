"""What is traced: one row per function, with the meaning of its arguments.

Adding a function is adding a row. Numbers are argument positions counted from 0,
as a C compiler passes them: a dim3 by value takes two. The row's place is the
operation's number, which lives only as long as a recording (names are stored).

Hot operations pass the runtime and then the driver; they are probed at the driver,
where direct callers show too, and at the runtime only where that does not lead to
a driver (`Row.hot` on a runtime row).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ingero.model import layout
from ingero.model.layout import Argument, OpFlag
from ingero.model.operations import Operation

NO_ARG = int(Argument.NO_ARG)
NO_FLAGS = OpFlag(0)


@dataclass(frozen=True, slots=True)
class Row:
    """A traced function."""

    name: str
    layer: str
    kind: str
    sync: bool = False  # blocks until the GPU finishes
    rare: bool = False  # every call deserves a record
    hot: bool = False
    quiet: bool = False  # sampled, and recorded when it fails; whoever makes no other call feeds no GPU
    bytes: int = NO_ARG
    rows: int = NO_ARG  # second factor of bytes
    dtype: int = NO_ARG
    stream: int = NO_ARG
    stream_at: int = NO_ARG  # offset of the stream in the structure `stream` points to
    out: int = NO_ARG
    comm: int = NO_ARG
    rank: int = NO_ARG
    nranks: int = NO_ARG
    device: int = NO_ARG
    id: int = NO_ARG
    text: int = NO_ARG  # what the handle written to `out` is called
    origin: int = NO_ARG  # what that handle is made from: another handle, or a host function
    kernel: int = NO_ARG  # what is launched: a host function, or the driver's handle
    direction: str | None = None
    kind_arg: int | None = None
    peer: int | None = None
    reduce: int | None = None
    arguments: int = 0  # where more than six
    flags: OpFlag = NO_FLAGS
    status: bool = True


def runtime(name: str, kind: str, **more: object) -> Row:
    return Row(name, "runtime", kind, **more)  # type: ignore[arg-type]


def driver(name: str, kind: str, **more: object) -> Row:
    return Row(name, "driver", kind, **more)  # type: ignore[arg-type]


def graph(name: str, **more: object) -> Row:
    return Row(name, "graph", "graph", rare=True, **more)  # type: ignore[arg-type]


def collective(name: str, **more: object) -> Row:
    more = {"flags": OpFlag.OP_COLLECTIVE | OpFlag.OP_TYPED_COUNT, **more}
    return Row(name, "nccl", "collective", rare=True, **more)  # type: ignore[arg-type]


def communicator(name: str, **more: object) -> Row:
    return Row(name, "nccl", "comm", rare=True, **more)  # type: ignore[arg-type]


NEW_COMM = OpFlag.OP_NEW_COMM
POLLING = OpFlag.OP_NOT_READY_OK

RUNTIME: tuple[Row, ...] = (
    # cudaLaunchKernel(func, dim3 grid, dim3 block, args, shared, stream): a dim3 takes two places
    runtime("cudaLaunchKernel", "launch", hot=True, kernel=0, stream=7, arguments=8),
    runtime(
        "__cudaLaunchKernel", "launch", hot=True, kernel=0, stream=7, arguments=8
    ),  # what <<<>>> calls since 13
    runtime("cudaLaunchKernelExC", "launch", hot=True, kernel=1, stream=0, stream_at=32),
    runtime("cudaLaunchCooperativeKernel", "launch", hot=True, kernel=0, stream=7, arguments=8),
    runtime("cudaLaunchHostFunc", "launch", hot=True, stream=0),
    runtime("cudaLaunchHostFunc_v2", "launch", hot=True, stream=0),
    runtime("cudaMemcpy", "copy", bytes=2, kind_arg=3),
    runtime("cudaMemcpyAsync", "copy", hot=True, bytes=2, kind_arg=3, stream=4),
    runtime("cudaMemcpy2D", "copy", bytes=4, rows=5, kind_arg=6, arguments=7),
    runtime("cudaMemcpy2DAsync", "copy", hot=True, bytes=4, rows=5, kind_arg=6, stream=7, arguments=8),
    runtime("cudaMemcpy3D", "copy"),
    runtime("cudaMemcpy3DAsync", "copy", hot=True, stream=1),
    runtime("cudaMemcpyPeer", "copy", bytes=4, direction="DtoD"),
    runtime("cudaMemcpyPeerAsync", "copy", bytes=4, stream=5, direction="DtoD"),
    runtime("cudaMemcpyToSymbol", "copy", bytes=2, kind_arg=4),
    runtime("cudaMemcpyToSymbolAsync", "copy", bytes=2, kind_arg=4, stream=5),
    runtime("cudaMemcpyFromSymbol", "copy", bytes=2, kind_arg=4),
    runtime("cudaMemcpyFromSymbolAsync", "copy", bytes=2, kind_arg=4, stream=5),
    runtime("cudaMemcpyBatchAsync", "copy", hot=True),
    runtime("cudaMemcpy3DBatchAsync", "copy", hot=True),
    runtime("cudaMemcpyWithAttributesAsync", "copy", hot=True, bytes=2, stream=4),
    runtime("cudaMemcpy2DToArray", "copy"),
    runtime("cudaMemcpy2DFromArray", "copy"),
    runtime("cudaMemset", "set", bytes=2),
    runtime("cudaMemsetAsync", "set", hot=True, bytes=2, stream=3),
    runtime("cudaMemset2D", "set", bytes=3, rows=4),
    runtime("cudaMemset2DAsync", "set", hot=True, bytes=3, rows=4, stream=5),
    runtime("cudaMemset3D", "set"),
    runtime("cudaMemset3DAsync", "set", hot=True),
    runtime("cudaMalloc", "alloc", rare=True, bytes=1, out=0),
    runtime("cudaMallocPitch", "alloc", rare=True, bytes=2, rows=3, out=0),
    runtime("cudaMalloc3D", "alloc", rare=True),
    runtime("cudaMallocArray", "alloc", rare=True, out=0),
    runtime("cudaMallocManaged", "alloc", rare=True, bytes=1, out=0),
    runtime("cudaMallocHost", "alloc", rare=True, bytes=1, out=0),
    runtime("cudaHostAlloc", "alloc", rare=True, bytes=1, out=0),
    runtime("cudaHostRegister", "alloc", rare=True, bytes=1),
    runtime("cudaHostUnregister", "free", rare=True),
    runtime("cudaMallocAsync", "alloc", rare=True, bytes=1, out=0, stream=2),
    runtime("cudaMallocFromPoolAsync", "alloc", rare=True, bytes=1, out=0, stream=3),
    # a free waits until nobody uses the memory
    runtime("cudaFree", "free", rare=True, sync=True, flags=OpFlag.OP_MAY_WAIT),
    runtime("cudaFreeHost", "free", rare=True),
    runtime("cudaFreeArray", "free", rare=True),
    runtime("cudaFreeAsync", "free", rare=True, stream=1),
    runtime("cudaMemPoolTrimTo", "free", rare=True),
    runtime("cudaMemPrefetchAsync", "copy", bytes=1, stream=3),
    runtime("cudaDeviceSynchronize", "sync", rare=True, sync=True),
    runtime("cudaStreamSynchronize", "sync", rare=True, sync=True, stream=0),
    runtime("cudaEventSynchronize", "sync", rare=True, sync=True),
    runtime("cudaThreadSynchronize", "sync", rare=True, sync=True),
    runtime("cudaStreamQuery", "poll", hot=True, stream=0, flags=POLLING),
    runtime("cudaEventQuery", "poll", hot=True, flags=POLLING),
    runtime("cudaEventCreate", "event", hot=True, out=0),
    runtime("cudaEventCreateWithFlags", "event", hot=True, out=0),
    runtime("cudaEventDestroy", "event", hot=True),
    runtime("cudaEventRecord", "event", hot=True, stream=1),
    runtime("cudaEventRecordWithFlags", "event", hot=True, stream=1),
    runtime("cudaStreamWaitEvent", "event", hot=True, stream=0),
    runtime("cudaStreamCreate", "context", rare=True, out=0),
    runtime("cudaStreamCreateWithFlags", "context", rare=True, out=0),
    runtime("cudaStreamCreateWithPriority", "context", rare=True, out=0),
    runtime("cudaStreamDestroy", "context", rare=True, stream=0),
    # the first question of a framework; where the driver is too old there is no second one
    runtime("cudaGetDeviceCount", "context", quiet=True),
    runtime("cudaSetDevice", "context", quiet=True, device=0, flags=OpFlag.OP_SET_DEVICE),
    runtime("cudaDeviceReset", "context", rare=True),
    runtime("cudaInitDevice", "context", rare=True),
    # what <<<>>> calls once for each place it stands at, since 13
    runtime("__cudaGetKernel", "module", rare=True, out=0, origin=1),
    runtime("cudaGetKernel", "module", rare=True, out=0, origin=1),
    runtime("cudaGetFuncBySymbol", "module", rare=True, out=0, origin=1),
    runtime("cudaLibraryGetKernel", "module", rare=True, out=0, text=2),
    graph("cudaStreamBeginCapture", stream=0),
    graph("cudaStreamBeginCaptureToGraph", stream=0),
    graph("cudaStreamEndCapture", stream=0, out=1),
    graph("cudaGraphCreate", out=0),
    graph("cudaGraphInstantiate", out=0),
    graph("cudaGraphInstantiateWithFlags", out=0),
    graph("cudaGraphInstantiateWithParams", out=0),
    graph("cudaGraphExecUpdate"),
    graph("cudaGraphLaunch", stream=1),
    graph("cudaGraphUpload", stream=1),
    graph("cudaGraphDestroy"),
    graph("cudaGraphExecDestroy"),
)

DRIVER: tuple[Row, ...] = (
    driver("cuLaunchKernel", "launch", hot=True, kernel=0, stream=8),
    driver("cuLaunchKernelEx", "launch", hot=True, kernel=1, stream=0, stream_at=32),
    driver("cuLaunchCooperativeKernel", "launch", hot=True, kernel=0, stream=8),
    driver("cuLaunchHostFunc", "launch", hot=True, stream=0),
    driver("cuMemcpy", "copy", hot=True, bytes=2),
    driver("cuMemcpyAsync", "copy", hot=True, bytes=2, stream=3),
    driver("cuMemcpyHtoD_v2", "copy", hot=True, bytes=2, direction="HtoD"),
    driver("cuMemcpyHtoDAsync_v2", "copy", hot=True, bytes=2, stream=3, direction="HtoD"),
    # a blocking copy to the host returns when the GPU has finished
    driver("cuMemcpyDtoH_v2", "copy", hot=True, sync=True, bytes=2, direction="DtoH"),
    # into pageable memory it does so too, whatever its name
    driver(
        "cuMemcpyDtoHAsync_v2",
        "copy",
        hot=True,
        sync=True,
        bytes=2,
        stream=3,
        direction="DtoH",
        flags=OpFlag.OP_MAY_WAIT,
    ),
    driver("cuMemcpyDtoD_v2", "copy", hot=True, bytes=2, direction="DtoD"),
    driver("cuMemcpyDtoDAsync_v2", "copy", hot=True, bytes=2, stream=3, direction="DtoD"),
    driver("cuMemcpy2D_v2", "copy", hot=True),
    driver("cuMemcpy2DUnaligned_v2", "copy", hot=True),
    driver("cuMemcpy2DAsync_v2", "copy", hot=True, stream=1),
    driver("cuMemcpy3D_v2", "copy", hot=True),
    driver("cuMemcpy3DAsync_v2", "copy", hot=True, stream=1),
    driver("cuMemcpyPeer", "copy", hot=True, bytes=4, direction="DtoD"),
    driver("cuMemcpyPeerAsync", "copy", hot=True, bytes=4, stream=5, direction="DtoD"),
    driver("cuMemcpyBatchAsync", "copy", hot=True),
    driver("cuMemsetD8_v2", "set", hot=True, bytes=2),
    driver("cuMemsetD16_v2", "set", hot=True),
    driver("cuMemsetD32_v2", "set", hot=True),
    driver("cuMemsetD8Async", "set", hot=True, bytes=2, stream=3),
    driver("cuMemsetD16Async", "set", hot=True, stream=3),
    driver("cuMemsetD32Async", "set", hot=True, stream=3),
    driver("cuMemAlloc_v2", "alloc", rare=True, bytes=1, out=0),
    driver("cuMemAllocPitch_v2", "alloc", rare=True, bytes=2, rows=3, out=0),
    driver("cuMemAllocManaged", "alloc", rare=True, bytes=1, out=0),
    driver("cuMemAllocHost_v2", "alloc", rare=True, bytes=1, out=0),
    driver("cuMemHostAlloc", "alloc", rare=True, bytes=1, out=0),
    driver("cuMemHostRegister_v2", "alloc", rare=True, bytes=1),
    driver("cuMemHostUnregister", "free", rare=True),
    driver("cuMemAllocAsync", "alloc", rare=True, bytes=1, out=0, stream=2),
    driver("cuMemAllocFromPoolAsync", "alloc", rare=True, bytes=1, out=0, stream=3),
    driver("cuMemFree_v2", "free", rare=True, sync=True, flags=OpFlag.OP_MAY_WAIT),
    driver("cuMemFreeHost", "free", rare=True),
    driver("cuMemFreeAsync", "free", rare=True, stream=1),
    driver("cuMemPoolTrimTo", "free", rare=True),
    driver("cuMemCreate", "alloc", rare=True, bytes=1, out=0),
    driver("cuMemRelease", "free", rare=True),
    driver("cuMemMap", "alloc", rare=True, bytes=1),
    driver("cuMemUnmap", "free", rare=True, bytes=1),
    driver("cuMemAddressReserve", "alloc", rare=True, bytes=1, out=0),
    driver("cuMemAddressFree", "free", rare=True, bytes=1),
    driver("cuMemSetAccess", "alloc", rare=True, bytes=1),
    driver("cuMemPrefetchAsync", "copy", bytes=1, stream=3),
    driver("cuCtxSynchronize", "sync", rare=True, sync=True),
    driver("cuStreamSynchronize", "sync", rare=True, sync=True, stream=0),
    driver("cuEventSynchronize", "sync", rare=True, sync=True),
    driver("cuStreamQuery", "poll", hot=True, stream=0, flags=POLLING),
    driver("cuEventQuery", "poll", hot=True, flags=POLLING),
    driver("cuEventCreate", "event", hot=True, out=0),
    driver("cuEventDestroy_v2", "event", hot=True),
    driver("cuEventRecord", "event", hot=True, stream=1),
    driver("cuEventRecordWithFlags", "event", hot=True, stream=1),
    driver("cuStreamWaitEvent", "event", hot=True, stream=0),
    driver("cuStreamCreate", "context", rare=True, out=0),
    driver("cuStreamCreateWithPriority", "context", rare=True, out=0),
    driver("cuStreamDestroy_v2", "context", rare=True, stream=0),
    driver("cuInit", "context", rare=True),
    driver("cuDeviceGet", "context", quiet=True, out=0, flags=OpFlag.OP_OUT32),
    driver("cuCtxCreate_v2", "context", rare=True, out=0, device=2, flags=OpFlag.OP_NEW_CONTEXT),
    driver("cuCtxCreate_v3", "context", rare=True, out=0, device=4, flags=OpFlag.OP_NEW_CONTEXT),
    driver("cuCtxCreate_v4", "context", rare=True, out=0, device=3, flags=OpFlag.OP_NEW_CONTEXT),
    driver("cuDevicePrimaryCtxRetain", "context", rare=True, out=0, device=1, flags=OpFlag.OP_NEW_CONTEXT),
    driver("cuCtxSetCurrent", "context", quiet=True, flags=OpFlag.OP_SET_CONTEXT),
    driver("cuCtxDestroy_v2", "context", rare=True),
    driver("cuDevicePrimaryCtxReset_v2", "context", rare=True),
    driver("cuModuleLoad", "module", rare=True, out=0),
    driver("cuModuleLoadData", "module", rare=True, out=0),
    driver("cuModuleLoadDataEx", "module", rare=True, out=0),
    driver("cuModuleLoadFatBinary", "module", rare=True, out=0),
    driver("cuModuleUnload", "module", rare=True),
    driver("cuModuleGetFunction", "module", rare=True, out=0, text=2),
    driver("cuLibraryLoadData", "module", rare=True, out=0),
    driver("cuLibraryLoadFromFile", "module", rare=True, out=0),
    driver("cuLibraryUnload", "module", rare=True),
    driver("cuLibraryGetKernel", "module", rare=True, out=0, text=2),
    driver("cuLibraryGetModule", "module", rare=True, out=0),
    # asked before many a launch since 13
    driver("cuKernelGetFunction", "module", hot=True, out=0, origin=1),
    driver("cuLinkComplete", "module", rare=True),
    graph("cuStreamBeginCapture_v2", stream=0),
    graph("cuStreamBeginCaptureToGraph", stream=0),
    graph("cuStreamEndCapture", stream=0, out=1),
    graph("cuGraphCreate", out=0),
    graph("cuGraphInstantiateWithFlags", out=0),
    graph("cuGraphInstantiateWithParams", out=0),
    graph("cuGraphExecUpdate_v2"),
    graph("cuGraphLaunch", stream=1),
    graph("cuGraphUpload", stream=1),
    graph("cuGraphDestroy"),
    graph("cuGraphExecDestroy"),
)

NCCL: tuple[Row, ...] = (
    # The 128-byte id by value lies on the stack on x86-64, so rank is the third register there.
    # arm64 passes a pointer to it in its place: see `arguments_for`.
    communicator("ncclCommInitRank", out=0, nranks=1, id=2, rank=3, flags=NEW_COMM | OpFlag.OP_BY_VALUE_ID),
    communicator(
        "ncclCommInitRankConfig", out=0, nranks=1, id=2, rank=3, flags=NEW_COMM | OpFlag.OP_BY_VALUE_ID
    ),
    communicator("ncclCommInitRankScalable", out=0, nranks=1, rank=2, flags=NEW_COMM),
    communicator("ncclCommInitAll", out=0, nranks=1, flags=NEW_COMM | OpFlag.OP_COMM_ARRAY),
    communicator("ncclCommSplit", out=3, comm=0, flags=NEW_COMM | OpFlag.OP_SPLIT_COMM),
    communicator("ncclCommShrink", out=3, comm=0, flags=NEW_COMM | OpFlag.OP_SPLIT_COMM),
    communicator("ncclCommFinalize", comm=0),
    communicator("ncclCommDestroy", comm=0, flags=OpFlag.OP_FREE_COMM),
    communicator("ncclCommAbort", comm=0, flags=OpFlag.OP_FREE_COMM),
    collective("ncclAllReduce", bytes=2, dtype=3, reduce=4, comm=5, stream=6, arguments=7),
    collective("ncclBroadcast", bytes=2, dtype=3, peer=4, comm=5, stream=6, arguments=7),
    collective("ncclBcast", bytes=1, dtype=2, peer=3, comm=4, stream=5),
    collective("ncclReduce", bytes=2, dtype=3, reduce=4, peer=5, comm=6, stream=7, arguments=8),
    collective("ncclAllGather", bytes=2, dtype=3, comm=4, stream=5),
    collective("ncclReduceScatter", bytes=2, dtype=3, reduce=4, comm=5, stream=6, arguments=7),
    collective("ncclAlltoAll", bytes=2, dtype=3, comm=4, stream=5),
    collective("ncclGather", bytes=2, dtype=3, peer=4, comm=5, stream=6, arguments=7),
    collective("ncclScatter", bytes=2, dtype=3, peer=4, comm=5, stream=6, arguments=7),
    collective("ncclSend", bytes=1, dtype=2, peer=3, comm=4, stream=5, flags=OpFlag.OP_TYPED_COUNT),
    collective("ncclRecv", bytes=1, dtype=2, peer=3, comm=4, stream=5, flags=OpFlag.OP_TYPED_COUNT),
    Row("ncclGroupStart", "nccl", "group"),
    Row("ncclGroupEnd", "nccl", "group", rare=True),
)

# The collector of CPython, where the file has its symbol: in 3.10 to 3.13 and from 3.14.5, in 3.14
# before that, and in 3.9. Hot, because a young program collects thousands of times a second.
PYTHON: tuple[Row, ...] = tuple(
    Row(name, "python", "gc", hot=True, status=False)
    for name in ("gc_collect_main", "_PyGC_Collect", "collect")
)

# Functions with fewer than two arguments: the registers behind hold leftovers of others.
NO_ARGUMENTS = """
cudaDeviceSynchronize cudaThreadSynchronize cudaDeviceReset cuCtxSynchronize ncclGroupStart ncclGroupEnd
"""
ONE_ARGUMENT = """
cudaFree cudaFreeHost cudaFreeArray cudaHostUnregister cudaStreamSynchronize cudaEventSynchronize
cudaStreamQuery cudaEventQuery cudaEventCreate cudaEventDestroy cudaStreamCreate cudaStreamDestroy
cudaGetDeviceCount cudaSetDevice cudaGraphDestroy cudaGraphExecDestroy cuMemFree_v2 cuMemFreeHost
cuMemHostUnregister cuMemRelease cuStreamSynchronize cuEventSynchronize cuStreamQuery cuEventQuery
cuEventDestroy_v2 cuStreamDestroy_v2 cuInit cuCtxSetCurrent cuCtxDestroy_v2 cuDevicePrimaryCtxReset_v2
cuModuleUnload cuLibraryUnload cuGraphDestroy cuGraphExecDestroy ncclCommFinalize ncclCommDestroy
ncclCommAbort
"""
ARITY = dict.fromkeys(NO_ARGUMENTS.split(), 0) | dict.fromkeys(ONE_ARGUMENT.split(), 1)


# Per-thread default stream: the same functions under another name.
def _per_thread(rows: Iterable[Row], suffix: str) -> tuple[Row, ...]:
    kinds = {"launch", "copy", "set", "event", "poll", "sync", "graph", "alloc", "free"}
    return tuple(
        replace(row, name=row.name + suffix)
        for row in rows
        if row.kind in kinds and (row.stream != NO_ARG or row.kind in ("copy", "set", "launch"))
    )


ROWS: tuple[Row, ...] = (
    RUNTIME
    + _per_thread(RUNTIME, "_ptsz")
    + _per_thread(RUNTIME, "_ptds")
    + DRIVER
    + _per_thread(DRIVER, "_ptsz")
    + _per_thread(DRIVER, "_ptds")
    + NCCL
    + PYTHON
)
BY_NAME: dict[str, tuple[int, Row]] = {row.name: (number, row) for number, row in enumerate(ROWS, start=1)}


def operations() -> list[Operation]:
    """The table as the rest of the program sees it."""
    return [
        Operation(
            number=number,
            name=row.name,
            layer=row.layer,
            kind=row.kind,
            direction=row.direction,
            kind_arg=row.kind_arg,
            bytes_known=row.bytes != NO_ARG,
            peer_arg=row.peer,
            reduce_arg=row.reduce,
            dtype_arg=row.dtype if row.dtype != NO_ARG else None,
            kernel_arg=row.kernel if row.kernel != NO_ARG else None,
            arity=0 if row.layer == "python" else ARITY.get(plain_name(row), 2),
        )
        for number, row in enumerate(ROWS, start=1)
    ]


def plain_name(row: Row) -> str:
    return row.name.removesuffix("_ptsz").removesuffix("_ptds")


def gives_work(row: Row) -> bool:
    """A result read back keeps no GPU busy."""
    if row.flags & OpFlag.OP_MAY_WAIT:
        return False
    return row.kind in ("launch", "copy", "set", "collective") or plain_name(row).endswith("GraphLaunch")


def family_of(row: Row) -> str:
    """Functions that share a link: giving one of them a link of its own touches those of its family alone."""
    if row.sync and row.kind in ("sync", "copy"):
        return "wait"  # calls that may last: apart from the short ones
    if row.kind in ("alloc", "free"):
        return "memory"
    return "short" if row.hot else "other"


def drains(row: Row) -> bool:
    """After it the GPU has done what the thread gave it.

    An event does where it was recorded last, which the kernel side knows; one that is only
    looked at does where it is done. A stream is taken for all of it: with several streams
    in flight time is called idle that is not.
    """
    name = plain_name(row)
    if row.kind in ("sync", "poll"):
        return True
    if row.flags & OpFlag.OP_MAY_WAIT:
        return True
    not_waited_for = ("Async", "Prefetch", "DtoD", "Peer")
    return row.kind == "copy" and not any(word in name for word in not_waited_for)


def _flags(row: Row) -> OpFlag:
    flags = row.flags
    for wanted, flag in (
        (row.sync, OpFlag.OP_SYNC),
        (row.kernel != NO_ARG, OpFlag.OP_LAUNCH),
        (row.text != NO_ARG or row.origin != NO_ARG, OpFlag.OP_NAMES),
        (row.rare, OpFlag.OP_RARE),
        (gives_work(row), OpFlag.OP_WORK),
        (drains(row), OpFlag.OP_DRAIN),
        ("EventRecord" in row.name, OpFlag.OP_RECORD_EVENT),
        ("EventSynchronize" in row.name or "EventQuery" in row.name, OpFlag.OP_EVENT_SYNC),
        (row.quiet, OpFlag.OP_QUIET),
        (family_of(row) == "wait", OpFlag.OP_WAIT),
        (row.status, OpFlag.OP_STATUS),
        (row.layer == "nccl", OpFlag.OP_IN_PROGRESS_OK),
        (row.layer == "driver" or row.name.startswith(("cuGraph", "cuStream")), OpFlag.OP_CALLER),
        # loading and set-up within a first launch, say, which is probed at the driver only
        (row.layer == "driver" and row.kind in ("module", "context"), OpFlag.OP_INNER),
        # rare ones can afford it, and a communicator must be known when the call begins
        (row.rare and row.arguments > 6, OpFlag.OP_STACK_ARGS),
    ):
        if wanted:
            flags |= flag
    return flags


def rank_argument(row: Row, machine: str) -> int:
    """Where the rank is: an id passed by value takes no register on x86-64, one on arm64."""
    by_value = bool(row.flags & OpFlag.OP_BY_VALUE_ID)
    return row.rank - 1 if by_value and machine == "x86_64" else row.rank


def kernel_table(machine: str) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """op_info for every operation number, as the kernel side reads it."""
    table = np.zeros(len(ROWS) + 1, layout.OP_INFO)
    # Number 0 is the function costs are measured on: it stands for a launch.
    for number, row in enumerate((ROWS[BY_NAME["cuLaunchKernel"][0] - 1], *ROWS)):
        table[number] = (
            int(_flags(row)),
            row.bytes,
            row.rows,
            row.dtype,
            row.stream,
            row.stream_at,
            row.out,
            row.comm,
            rank_argument(row, machine),
            row.nranks,
            row.device,
            row.id,
            row.arguments,
            row.text,
            row.origin,
            row.kernel,
            0,
            0,
            0,
        )
    table["flags"][0] &= 0xFFFFFFFF ^ int(OpFlag.OP_STATUS)  # what it returns is no status
    return table
