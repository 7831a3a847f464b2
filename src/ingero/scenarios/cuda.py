"""The CUDA runtime, driver and NCCL, called from Python by path: the stub's or real ones.

Functions keep their own spelling (`cuda.cudaMalloc(...)`) and their status is checked:
anything but success raises CudaCallError, `try_call` returns the status instead.
This is for workloads. The agent never calls CUDA and does not import this module.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, c_float, c_int, c_size_t, c_ubyte, c_uint, c_ulonglong, c_void_p
from importlib import resources
from pathlib import Path
from typing import Any

from ingero.errors import TargetError

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, BY_ADDRESS = range(5)
NOT_READY = 600
SCHEDULE_SPIN, SCHEDULE_YIELD, SCHEDULE_BLOCK = 1, 2, 4
EVENT_BLOCKING_SYNC = 1
STREAM_NON_BLOCKING = 1
NCCL_INT8, NCCL_FLOAT32, NCCL_SUM = 0, 7, 0

KERNELS = ("_Z9vectorAddPKfS0_Pfi", "_Z6matmulPKfS0_Pfiii", "_Z7softmaxPKfPfii", "_Z9layerNormPKfPfi")


class CudaCallError(Exception):
    """A call returned something other than success."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(function, status)
        self.function = function
        self.status = status

    def __str__(self) -> str:
        return f"{self.function} returned {self.status}"


class Dim3(ctypes.Structure):
    """Passed by value, as the runtime's ABI has it."""

    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class RuntimeLaunchConfig(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = [
        ("grid", Dim3),
        ("block", Dim3),
        ("shared_bytes", c_size_t),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    ]


class UniqueId(ctypes.Structure):
    """ncclUniqueId: 128 bytes, passed by value."""

    _fields_ = [("internal", c_ubyte * 128)]


class MemoryProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location_type", c_int),
        ("device", c_int),
        ("win32", c_void_p),
        ("flags", c_ubyte * 8),
    ]


_OUT = POINTER(c_void_p)
_LAUNCH = (c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p)
_COLLECTIVE = (c_void_p, c_void_p, c_size_t, c_int)

# Only where ctypes' own guess (int for numbers, pointer for byref) would pass too few bits.
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "cudaMalloc": (_OUT, c_size_t),
    "cudaFree": (c_void_p,),
    "cudaMallocHost": (_OUT, c_size_t),
    "cudaHostAlloc": (_OUT, c_size_t, c_uint),
    "cudaFreeHost": (c_void_p,),
    "cudaMallocManaged": (_OUT, c_size_t, c_uint),
    "cudaMallocAsync": (_OUT, c_size_t, c_void_p),
    "cudaFreeAsync": (c_void_p, c_void_p),
    "cudaMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "cudaMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "cudaMemcpy2D": (c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int),
    "cudaMemcpy2DAsync": (c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int, c_void_p),
    "cudaMemcpyPeer": (c_void_p, c_int, c_void_p, c_int, c_size_t),
    "cudaMemcpyToSymbol": (c_void_p, c_void_p, c_size_t, c_size_t, c_int),
    "cudaMemset": (c_void_p, c_int, c_size_t),
    "cudaMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    "cudaLaunchKernel": _LAUNCH,
    "cudaLaunchKernel_ptsz": _LAUNCH,
    "cudaLaunchCooperativeKernel": _LAUNCH,
    "cudaLaunchKernelExC": (POINTER(RuntimeLaunchConfig), c_void_p, c_void_p),
    "cudaStreamCreate": (_OUT,),
    "cudaStreamCreateWithFlags": (_OUT, c_uint),
    "cudaStreamDestroy": (c_void_p,),
    "cudaStreamSynchronize": (c_void_p,),
    "cudaStreamQuery": (c_void_p,),
    "cudaStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cudaStreamBeginCapture": (c_void_p, c_int),
    "cudaStreamEndCapture": (c_void_p, _OUT),
    "cudaEventCreateWithFlags": (_OUT, c_uint),
    "cudaEventRecord": (c_void_p, c_void_p),
    "cudaEventQuery": (c_void_p,),
    "cudaEventSynchronize": (c_void_p,),
    "cudaEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cudaEventDestroy": (c_void_p,),
    "cudaGraphInstantiate": (_OUT, c_void_p, c_ulonglong),
    "cudaGraphExecUpdate": (c_void_p, c_void_p, c_void_p),
    "cudaGraphLaunch": (c_void_p, c_void_p),
    "cudaGraphDestroy": (c_void_p,),
    "cudaGraphExecDestroy": (c_void_p,),
    "cuMemAlloc_v2": (POINTER(c_ulonglong), c_size_t),
    "cuMemFree_v2": (c_ulonglong,),
    "cuMemcpyHtoD_v2": (c_ulonglong, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_ulonglong, c_size_t),
    "cuMemCreate": (POINTER(c_ulonglong), c_size_t, POINTER(MemoryProperties), c_ulonglong),
    "cuMemRelease": (c_ulonglong,),
    "cuMemAddressReserve": (POINTER(c_ulonglong), c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemAddressFree": (c_ulonglong, c_size_t),
    "cuMemMap": (c_ulonglong, c_size_t, c_size_t, c_ulonglong, c_ulonglong),
    "cuMemUnmap": (c_ulonglong, c_size_t),
    "cuCtxSetCurrent": (c_void_p,),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuMemAllocHost_v2": (_OUT, c_size_t),
    "cuMemcpyHtoDAsync_v2": (c_ulonglong, c_void_p, c_size_t, c_void_p),
    "cuStreamCreate": (_OUT, c_uint),
    "cuStreamSynchronize": (c_void_p,),
    "cuModuleLoadData": (_OUT, c_void_p),
    "cuModuleGetFunction": (_OUT, c_void_p, ctypes.c_char_p),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuGetProcAddress_v2": (ctypes.c_char_p, _OUT, c_int, ctypes.c_uint64, POINTER(c_int)),
    "ncclCommInitRank": (_OUT, c_int, UniqueId, c_int),
    "ncclCommInitRankConfig": (_OUT, c_int, UniqueId, c_int, c_void_p),
    "ncclCommInitAll": (_OUT, c_int, POINTER(c_int)),
    "ncclCommSplit": (c_void_p, c_int, c_int, _OUT, c_void_p),
    "ncclCommDestroy": (c_void_p,),
    "ncclCommAbort": (c_void_p,),
    "ncclCommFinalize": (c_void_p,),
    "ncclCommCount": (c_void_p, POINTER(c_int)),
    "ncclCommUserRank": (c_void_p, POINTER(c_int)),
    "ncclCommCuDevice": (c_void_p, POINTER(c_int)),
    "ncclAllReduce": (*_COLLECTIVE, c_int, c_void_p, c_void_p),
    "ncclBroadcast": (*_COLLECTIVE, c_int, c_void_p, c_void_p),
    "ncclBcast": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclReduce": (*_COLLECTIVE, c_int, c_int, c_void_p, c_void_p),
    "ncclAllGather": (*_COLLECTIVE, c_void_p, c_void_p),
    "ncclReduceScatter": (*_COLLECTIVE, c_int, c_void_p, c_void_p),
    "ncclSend": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
    "ncclRecv": (c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p),
}


def stub_dir() -> Path:
    """The folder with the stub's libraries; `alt` and `endbr` lie below it."""
    chosen = os.environ.get("INGERO_STUB_DIR")
    library = Path(chosen) / "libcuda.so.1" if chosen else _installed("libcuda.so.1")
    if not library.is_file():
        raise TargetError(
            f"no stub CUDA library at {library}",
            hint="It is built with the package: install ingero, or set INGERO_STUB_DIR to the built folder.",
        )
    return library.parent


def _installed(name: str) -> Path:
    # file by file: an editable install keeps built files elsewhere than the sources
    inside = resources.files("ingero.scenarios").joinpath("stub", "lib", name)
    with resources.as_file(inside) as path:
        return path


def symbol_address(library: ctypes.CDLL, name: str) -> int:
    """Where a function of a loaded library lies in memory."""
    address = ctypes.cast(getattr(library, name), c_void_p).value
    assert address is not None  # the loader found it
    return address


class CudaLibrary:
    """A loaded CUDA or NCCL library whose functions are attributes."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.loaded = ctypes.CDLL(str(path))

    def function(self, name: str) -> Any:
        """The foreign function with its argument types set."""
        found = self.loaded[name]
        if name in _ARGUMENTS:
            found.argtypes = _ARGUMENTS[name]
        return found

    def try_call(self, name: str, *arguments: Any) -> int:
        """Calls and returns the status, whatever it is."""
        return int(getattr(self, name).unchecked(*arguments))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("cu", "nccl")):
            raise AttributeError(name)
        foreign = self.function(name)

        def checked(*arguments: Any) -> None:
            status = foreign(*arguments)
            if status:
                raise CudaCallError(name, status)

        checked.unchecked = foreign  # type: ignore[attr-defined]
        setattr(self, name, checked)  # looked up once: the next call is direct
        return checked


class CudaRuntime(CudaLibrary):
    """libcudart with the few calls that are awkward to spell in ctypes."""

    def malloc(self, bytes_: int) -> int:
        """Device memory; the address."""
        pointer = c_void_p()
        self.cudaMalloc(pointer, bytes_)
        return pointer.value or 0

    def malloc_host(self, bytes_: int) -> int:
        """Pinned host memory; the address."""
        pointer = c_void_p()
        self.cudaMallocHost(pointer, bytes_)
        return pointer.value or 0

    def stream(self, flags: int = 0) -> int:
        """A new stream's handle."""
        handle = c_void_p()
        self.cudaStreamCreateWithFlags(handle, flags)
        return handle.value or 0

    def event(self, flags: int = 0) -> int:
        """A new event's handle."""
        handle = c_void_p()
        self.cudaEventCreateWithFlags(handle, flags)
        return handle.value or 0

    def launch(self, kernel: int, blocks: int = 1, threads: int = 256, stream: int = 0) -> None:
        """Launches a host function's kernel; on the stub a block takes a microsecond."""
        self.cudaLaunchKernel(kernel, Dim3(blocks, 1, 1), Dim3(threads, 1, 1), None, 0, stream)


def stub_kernel(name: str = KERNELS[0]) -> int:
    """The host function of one of the stub's kernels: a symbol, so that it can be named."""
    library = ctypes.CDLL(str(stub_dir() / "libstubkernels.so"))
    return symbol_address(library, name)


def stub_runtime(variant: str = "") -> CudaRuntime:
    """The stub's libcudart; variant is empty, `alt` or `endbr`."""
    return CudaRuntime(stub_dir() / variant / "libcudart.so.12")


def stub_driver() -> CudaLibrary:
    """The stub's libcuda."""
    return CudaLibrary(stub_dir() / "libcuda.so.1")


def stub_nccl() -> CudaLibrary:
    """The stub's libnccl."""
    return CudaLibrary(stub_dir() / "libnccl.so.2")
