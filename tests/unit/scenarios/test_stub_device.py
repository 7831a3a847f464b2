"""The stub's device behaves like one: a queue, a clock, waiting, memory, sharing.

Bounds from below are exact, since the device's clock cannot run fast; bounds from
above are wide, since this machine's can stand still.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ingero.scenarios import cuda

MS = 1_000_000


def elapsed_ns(call: Any, *arguments: Any) -> int:
    before_ns = time.monotonic_ns()
    call(*arguments)
    return time.monotonic_ns() - before_ns


def launch_and_wait() -> tuple[int, int]:
    runtime, kernel = cuda.stub_runtime(), cuda.stub_kernel()
    runtime.launch(kernel)
    runtime.cudaDeviceSynchronize()
    before_ns = time.monotonic_ns()
    for _ in range(10):
        runtime.launch(kernel, blocks=10_000)
    launched_ns = time.monotonic_ns() - before_ns
    runtime.cudaDeviceSynchronize()
    return launched_ns, time.monotonic_ns() - before_ns


def test_launches_return_at_once_and_a_synchronising_call_waits_for_the_device(processes: Any) -> None:
    launched_ns, done_ns = processes.run(launch_and_wait)
    assert done_ns >= 100 * MS
    assert launched_ns < 50 * MS


def fill_the_queue() -> tuple[int, int]:
    runtime, kernel = cuda.stub_runtime(), cuda.stub_kernel()
    runtime.launch(kernel, blocks=200_000)
    filling_ns = sum(elapsed_ns(runtime.launch, kernel) for _ in range(1023))
    return filling_ns, elapsed_ns(runtime.launch, kernel)


def test_a_launch_waits_when_1024_are_outstanding(processes: Any) -> None:
    filling_ns, one_more_ns = processes.run(fill_the_queue)
    assert filling_ns + one_more_ns >= 190 * MS
    assert one_more_ns > filling_ns


def wait_with(flags: int) -> tuple[int, int]:
    runtime, kernel = cuda.stub_runtime(), cuda.stub_kernel()
    runtime.cudaSetDeviceFlags(flags)
    runtime.launch(kernel, blocks=200_000)
    cpu_ns = time.thread_time_ns()
    wall_ns = elapsed_ns(runtime.cudaDeviceSynchronize)
    return wall_ns, time.thread_time_ns() - cpu_ns


def test_waiting_burns_cpu_unless_the_blocking_flag_is_set(processes: Any) -> None:
    spun_wall_ns, spun_cpu_ns = processes.run(wait_with, 0)
    slept_wall_ns, slept_cpu_ns = processes.run(wait_with, cuda.SCHEDULE_BLOCK)
    assert min(spun_wall_ns, slept_wall_ns) >= 190 * MS
    assert slept_cpu_ns < 10 * MS
    assert spun_cpu_ns > 5 * slept_cpu_ns


def allocate_and_free() -> int:
    runtime = cuda.stub_runtime()
    runtime.cudaFree(None)
    cpu_ns = time.thread_time_ns()
    runtime.cudaFree(runtime.malloc(1 << 20))
    return time.thread_time_ns() - cpu_ns


def test_an_allocation_and_a_free_burn_the_cpu_time_asked_for(processes: Any) -> None:
    assert processes.run(allocate_and_free, ALLOC_US=20_000) >= 40 * MS


def copy_both_kinds() -> tuple[int, int]:
    runtime, size = cuda.stub_runtime(), 64 << 20
    device, pinned = runtime.malloc(size), runtime.malloc_host(size)
    pageable = ctypes.create_string_buffer(16)
    spent = []
    for host in (ctypes.addressof(pageable), pinned):
        cpu_ns = time.thread_time_ns()
        runtime.cudaMemcpyAsync(device, host, size, cuda.HOST_TO_DEVICE, None)
        spent.append(time.thread_time_ns() - cpu_ns)
    return spent[0], spent[1]


def test_a_pageable_copy_burns_the_callers_cpu_and_a_pinned_one_does_not(processes: Any) -> None:
    pageable_ns, pinned_ns = processes.run(copy_both_kinds, PAGEABLE_GBPS=4)
    assert pageable_ns >= (64 << 20) / 4 * 0.99
    assert pinned_ns < pageable_ns / 4


def keep_device_busy(ready: str, peers: int) -> int:
    runtime, kernel = cuda.stub_runtime(), cuda.stub_kernel()
    runtime.launch(kernel)
    Path(f"{ready}.{os.getpid()}").touch()
    while len(list(Path(ready).parent.glob(Path(ready).name + ".*"))) < peers:
        time.sleep(0.001)
    runtime.launch(kernel, blocks=200_000)
    return elapsed_ns(runtime.cudaDeviceSynchronize)


def test_two_processes_on_one_device_halve_its_speed_for_each_other(
    processes: Any, device: str, tmp_path: Path
) -> None:
    alone_ns = processes.run(keep_device_busy, str(tmp_path / "alone"), 1, DEVICE=device)
    both = [processes.start(keep_device_busy, str(tmp_path / "both"), 2, DEVICE=device) for _ in range(2)]
    assert alone_ns >= 190 * MS
    assert min(process.result(timeout=60) for process in both) > 300 * MS


def take_all_memory() -> list[int]:
    runtime, pointer = cuda.stub_runtime(), ctypes.c_void_p()
    kept = runtime.malloc(3 << 20)
    too_much = runtime.try_call("cudaMalloc", ctypes.byref(pointer), 2 << 20)
    remembered = runtime.loaded.cudaGetLastError()
    runtime.cudaFree(kept)
    fits_now = runtime.try_call("cudaMalloc", ctypes.byref(pointer), 2 << 20)
    return [too_much, remembered, fits_now]


def test_memory_ends_where_the_device_ends(processes: Any) -> None:
    assert processes.run(take_all_memory, MEMORY="4M") == [2, 2, 0]


def misuse() -> dict[str, int]:
    runtime = cuda.stub_runtime()
    pointer = runtime.malloc(4096)
    runtime.cudaFree(pointer)
    return {
        "double free": runtime.try_call("cudaFree", pointer),
        "free inside": runtime.try_call("cudaFree", runtime.malloc(1 << 20) + 16),
        "bad stream": runtime.try_call("cudaStreamSynchronize", 0x1234560),
        "bad device": runtime.try_call("cudaSetDevice", 7),
        "empty grid": runtime.try_call(
            "cudaLaunchKernel", cuda.stub_kernel(), cuda.Dim3(0, 1, 1), cuda.Dim3(1, 1, 1), None, 0, None
        ),
        "copy past the end": runtime.try_call("cudaMemset", runtime.malloc(4096), 0, 8192),
    }


def test_misuse_gives_the_codes_of_the_real_library(processes: Any) -> None:
    assert processes.run(misuse) == {
        "double free": 1,
        "free inside": 1,
        "bad stream": 400,
        "bad device": 101,
        "empty grid": 9,
        "copy past the end": 1,
    }


def statuses_of_allocations(count: int) -> list[int]:
    runtime, pointer = cuda.stub_runtime(), ctypes.c_void_p()
    return [runtime.try_call("cudaMalloc", ctypes.byref(pointer), 64) for _ in range(count)]


@pytest.mark.parametrize(
    ("asked", "statuses"),
    [
        ("cudaMalloc:3", [0, 0, 2, 0]),
        ("cudaMalloc:3+", [0, 0, 2, 2]),
        ("cudaFree:1,cuMemAlloc_v2:2=700", [0, 700, 0, 0]),
    ],
)
def test_a_call_fails_when_it_is_asked_to(processes: Any, asked: str, statuses: list[int]) -> None:
    assert processes.run(statuses_of_allocations, 4, FAIL=asked) == statuses


def use_devices_at_once() -> tuple[int, int]:
    runtime, kernel, count = cuda.stub_runtime(), cuda.stub_kernel(), ctypes.c_int()
    runtime.cudaGetDeviceCount(ctypes.byref(count))
    before_ns = time.monotonic_ns()
    for device in range(count.value):
        runtime.cudaSetDevice(device)
        runtime.launch(kernel, blocks=200_000)
    for device in range(count.value):
        runtime.cudaSetDevice(device)
        runtime.cudaDeviceSynchronize()
    return count.value, time.monotonic_ns() - before_ns


def test_every_device_has_a_queue_of_its_own(processes: Any) -> None:
    count, took_ns = processes.run(use_devices_at_once, DEVICES=3)
    assert count == 3
    assert 200 * MS <= took_ns < 500 * MS


def order_streams() -> tuple[float, int]:
    runtime, kernel, ms = cuda.stub_runtime(), cuda.stub_kernel(), ctypes.c_float()
    first, second = runtime.stream(cuda.STREAM_NON_BLOCKING), runtime.stream(cuda.STREAM_NON_BLOCKING)
    start, middle, end = (runtime.event() for _ in range(3))
    runtime.cudaEventRecord(start, first)
    runtime.launch(kernel, blocks=50_000, stream=first)
    runtime.cudaEventRecord(middle, first)
    runtime.cudaStreamWaitEvent(second, middle, 0)
    runtime.cudaEventRecord(end, second)
    pending = runtime.try_call("cudaEventQuery", end)
    runtime.cudaEventSynchronize(end)
    runtime.cudaEventElapsedTime(ctypes.byref(ms), start, end)
    return ms.value, pending


def test_an_event_orders_streams_and_keeps_the_devices_time(processes: Any) -> None:
    ms, pending = processes.run(order_streams)
    assert 49.999 <= ms < 500
    assert pending == cuda.NOT_READY


def capture(runtime: cuda.CudaRuntime, stream: int, kernels: int) -> int:
    graph = ctypes.c_void_p()
    runtime.cudaStreamBeginCapture(stream, 0)
    for _ in range(kernels):
        runtime.launch(cuda.stub_kernel(), blocks=20_000, stream=stream)
    runtime.cudaStreamEndCapture(stream, ctypes.byref(graph))
    return graph.value or 0


def use_graphs() -> dict[str, int]:
    runtime, executable = cuda.stub_runtime(), ctypes.c_void_p()
    stream = runtime.stream()
    five, six = capture(runtime, stream, 5), capture(runtime, stream, 6)
    capturing_ns = elapsed_ns(runtime.cudaStreamSynchronize, stream)
    runtime.cudaStreamBeginCapture(stream, 0)
    refused = runtime.try_call("cudaStreamSynchronize", stream)
    runtime.cudaStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p()))
    runtime.cudaGraphInstantiate(ctypes.byref(executable), five, 0)
    runtime.cudaGraphLaunch(executable, stream)
    return {
        "capturing_ns": capturing_ns,
        "running_ns": elapsed_ns(runtime.cudaStreamSynchronize, stream),
        "sync while capturing": refused,
        "update": runtime.try_call("cudaGraphExecUpdate", executable, six, None),
        "destroy": runtime.try_call("cudaGraphDestroy", five),
        "destroy again": runtime.try_call("cudaGraphDestroy", five),
    }


def test_a_graph_runs_when_launched_and_not_when_captured(processes: Any) -> None:
    seen = processes.run(use_graphs)
    assert seen["capturing_ns"] < 50 * MS
    assert seen["running_ns"] >= 95 * MS
    assert (seen["sync while capturing"], seen["update"]) == (900, 910)
    assert (seen["destroy"], seen["destroy again"]) == (0, 1)


def status_in_child(used_before: bool) -> int:
    runtime = cuda.stub_runtime()
    if used_before:
        runtime.malloc(64)
    child = os.fork()
    if child == 0:
        pointer = ctypes.c_void_p()
        os._exit(runtime.try_call("cudaMalloc", ctypes.byref(pointer), 64))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_can_use_the_device_only_if_its_parent_had_not(processes: Any) -> None:
    assert processes.run(status_in_child, False) == 0
    assert processes.run(status_in_child, True) == 3


def leave_memory_behind() -> int:
    runtime = cuda.stub_runtime()
    runtime.malloc(3 << 20)
    os.kill(os.getpid(), 9)
    return 0


def allocate_after() -> int:
    return cuda.stub_runtime().malloc(3 << 20)


def test_memory_of_a_killed_process_is_free_again(processes: Any, device: str) -> None:
    killed = processes.start(leave_memory_behind, DEVICE=device, MEMORY="4M")
    assert killed.exception(timeout=60) is not None
    assert processes.run(allocate_after, DEVICE=device, MEMORY="4M")


def map_memory() -> list[int]:
    driver, runtime = cuda.stub_driver(), cuda.stub_runtime()
    runtime.cudaFree(None)
    address, handle = ctypes.c_ulonglong(), ctypes.c_ulonglong()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    used = []

    def note() -> None:
        runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        used.append(total.value - free.value)

    driver.cuMemAddressReserve(ctypes.byref(address), 2 << 20, 0, 0, 0)
    note()
    driver.cuMemCreate(ctypes.byref(handle), 2 << 20, ctypes.byref(cuda.MemoryProperties()), 0)
    driver.cuMemMap(address, 2 << 20, 0, handle, 0)
    driver.cuMemRelease(handle)
    note()
    driver.cuMemUnmap(address, 2 << 20)
    driver.cuMemAddressFree(address, 2 << 20)
    note()
    return used


def test_virtual_memory_counts_while_it_is_mapped(processes: Any) -> None:
    assert processes.run(map_memory) == [0, 2 << 20, 0]
