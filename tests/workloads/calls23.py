"""Makes 23 known calls in a known order and prints each as a JSON line.

    calls23.py [--layer runtime|driver] [--variant alt|endbr] [--library PATH]
               [--threads N] [--forks N] [--late]

Prints `ready PID`, waits for a line, calls, prints `done`, waits for another line (or
the end of input) before it exits. A line holds function, layer, library, pid, tid, the
first six argument registers, the status, what the call wrote through its out argument,
and CLOCK_MONOTONIC before and after. --late loads the library only after the first line,
says `loaded`, and waits for another line before it calls.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from ctypes import c_int, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any

from ingero.scenarios import cuda

GARBAGE = 0xDEAD0000
TOO_MUCH_BYTES = 1 << 50
HOST = ctypes.create_string_buffer(1 << 16)
Call = tuple[str, tuple[Any, ...], Any]  # function, arguments, the object written to or None


def runtime_calls() -> Iterator[Call]:
    """23 runtime calls; later arguments come from earlier results, so this is a generator."""
    a, b, pinned, stream, event, none = (c_void_p() for _ in range(6))
    first, second = (cuda.stub_kernel(name) for name in cuda.KERNELS[:2])
    host = ctypes.addressof(HOST)
    yield "cudaMalloc", (a, 1 << 20), a
    yield "cudaMalloc", (b, 3 << 20), b
    yield "cudaMallocHost", (pinned, 1 << 20), pinned
    yield "cudaStreamCreate", (stream,), stream
    yield "cudaMemcpyAsync", (a.value, pinned.value, 1 << 20, cuda.HOST_TO_DEVICE, stream.value), None
    yield "cudaMemcpy", (b.value, host, 65536, cuda.HOST_TO_DEVICE), None
    yield "cudaMemset", (a.value, 0, 4096), None
    yield "cudaLaunchKernel", (first, cuda.Dim3(7, 1, 1), cuda.Dim3(256, 1, 1), None, 0, stream.value), None
    yield (
        "cudaLaunchKernel",
        (second, cuda.Dim3(3, 2, 1), cuda.Dim3(128, 2, 1), None, 1024, stream.value),
        None,
    )
    yield "cudaStreamSynchronize", (stream.value,), None
    yield "cudaEventCreateWithFlags", (event, cuda.EVENT_BLOCKING_SYNC), event
    yield "cudaEventRecord", (event.value, stream.value), None
    yield "cudaEventSynchronize", (event.value,), None
    yield "cudaMemcpy", (host, b.value, 12345, cuda.DEVICE_TO_HOST), None
    yield "cudaMemcpy", (b.value, a.value, 4096, cuda.DEVICE_TO_DEVICE), None
    yield "cudaDeviceSynchronize", (), None
    yield "cudaMalloc", (none, TOO_MUCH_BYTES), none
    yield "cudaEventDestroy", (event.value,), None
    yield "cudaStreamDestroy", (stream.value,), None
    yield "cudaFreeHost", (pinned.value,), None
    yield "cudaFree", (a.value,), None
    yield "cudaFree", (b.value,), None
    yield "cudaFree", (GARBAGE,), None


def driver_calls() -> Iterator[Call]:
    """23 driver calls, the start-up among them."""
    a, b, none = (c_ulonglong() for _ in range(3))
    context, module, function = (c_void_p() for _ in range(3))
    device = c_int()
    host = ctypes.addressof(HOST)
    yield "cuInit", (0,), None
    yield "cuDeviceGet", (device, 0), device
    yield "cuDevicePrimaryCtxRetain", (context, 0), context
    yield "cuCtxSetCurrent", (context.value,), None
    yield "cuMemAlloc_v2", (a, 1 << 20), a
    yield "cuMemAlloc_v2", (b, 5 << 20), b
    yield "cuMemAlloc_v2", (none, TOO_MUCH_BYTES), none
    yield "cuModuleLoadData", (module, host), module
    yield "cuModuleGetFunction", (function, module.value, b"_Z9vectorAddPKfS0_Pfi"), function
    for blocks in range(1, 7):
        yield "cuLaunchKernel", (function.value, blocks, 1, 1, 256, 1, 1, 0, None, None, None), None
    yield "cuStreamSynchronize", (None,), None
    yield "cuMemcpyHtoD_v2", (a.value, host, 4096), None
    yield "cuMemcpyHtoD_v2", (b.value, host, 65536), None
    yield "cuMemcpyDtoH_v2", (host, b.value, 777), None
    yield "cuCtxSynchronize", (), None
    yield "cuMemFree_v2", (a.value,), None
    yield "cuMemFree_v2", (b.value,), None
    yield "cuMemFree_v2", (GARBAGE,), None


def registers(arguments: tuple[Any, ...], written: Any) -> list[int]:
    """The first six integer registers that these arguments end up in."""
    values: list[int] = []
    for argument in arguments:
        if written is not None and argument is written:
            values.append(ctypes.addressof(written))
        elif isinstance(argument, cuda.Dim3):
            values += [argument.x | argument.y << 32, argument.z]
        elif isinstance(argument, bytes):
            values.append(ctypes.cast(ctypes.c_char_p(argument), c_void_p).value or 0)
        else:
            values.append(argument or 0)
    return values[:6]


def make(library: cuda.CudaLibrary, layer: str, call: Call) -> dict[str, Any]:
    """One call and all that is known about it."""
    name, arguments, written = call
    foreign = library.function(name)
    passed = tuple(
        ctypes.byref(argument) if written is not None and argument is written else argument
        for argument in arguments
    )
    before_ns = time.monotonic_ns()
    status = foreign(*passed)
    after_ns = time.monotonic_ns()
    return {
        "function": name,
        "layer": layer,
        "library": str(library.path),
        "pid": os.getpid(),
        "tid": threading.get_native_id(),
        "args": registers(arguments, written),
        "ret": status,
        "out": None if written is None else written.value or 0,
        "before_ns": before_ns,
        "after_ns": after_ns,
    }


def make_all(library: cuda.CudaLibrary, layer: str) -> list[dict[str, Any]]:
    """All 23, made by this thread."""
    calls = runtime_calls() if layer == "runtime" else driver_calls()
    return [make(library, layer, call) for call in calls]


def in_threads(library: cuda.CudaLibrary, layer: str, threads: int) -> list[dict[str, Any]]:
    """Every thread makes all 23 calls; with one thread it is the main one."""
    if threads == 1:
        return make_all(library, layer)
    made: list[list[dict[str, Any]]] = [[] for _ in range(threads)]

    def work(index: int) -> None:
        made[index] = make_all(library, layer)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [record for records in made for record in records]


def in_children(library: cuda.CudaLibrary, layer: str, threads: int, forks: int) -> None:
    """Children do the calling, one after the other, so that their lines do not mix."""
    for _ in range(forks):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            show(in_threads(library, layer, threads))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


def show(records: list[dict[str, Any]]) -> None:
    for record in records:
        print(json.dumps(record))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layer", choices=("runtime", "driver"), default="runtime")
    parser.add_argument("--variant", default="")
    parser.add_argument("--library", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--forks", type=int, default=0)
    parser.add_argument("--late", action="store_true")
    options = parser.parse_args()
    name = "libcudart.so.12" if options.layer == "runtime" else "libcuda.so.1"
    path = options.library or cuda.stub_dir() / options.variant / name
    library = None if options.late else cuda.CudaLibrary(path)
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    if library is None:
        library = cuda.CudaLibrary(path)
        print('"loaded"', flush=True)
        sys.stdin.readline()
    if options.forks:
        in_children(library, options.layer, options.threads, options.forks)
    else:
        show(in_threads(library, options.layer, options.threads))
    print("done", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
