"""What the operation numbers of the Go implementation mean, in our words.

Functions keep the library's spelling. Its process_fork fires for threads too, and
its process_exit for every thread, so they become `clone` and, for a thread that is
not the main one, `thread_exit`: neither may pass for a process that came or went.
Instants of switches, block requests and socket calls are their end (seen in the
recordings: taken as begin, intervals of one thread overlap), those of library calls
their begin.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingero.model.operations import Source

THREAD_EXIT = 106  # made up here: process_exit of a thread
TASK_EXIT = 107  # and the two together, as aggregates count them
SWITCH, WAKEUP, PAGE_ALLOC, OOM, EXEC, EXIT, CLONE = range(1, 8)
READ = 1


@dataclass(frozen=True, slots=True)
class GoOperation:
    source: Source
    op: int
    layer: str
    name: str
    kind: str = "other"
    bytes_known: bool = False  # arg0 is a number of bytes


def _runtime(op: int, name: str, kind: str, bytes_known: bool = False) -> GoOperation:
    return GoOperation(Source.RUNTIME, op, "runtime", name, kind, bytes_known)


def _driver(op: int, name: str, kind: str, bytes_known: bool = False) -> GoOperation:
    return GoOperation(Source.DRIVER, op, "driver", name, kind, bytes_known)


def _host(op: int, name: str, bytes_known: bool = False) -> GoOperation:
    return GoOperation(Source.HOST, op, "host", name, "other", bytes_known)


ALL: tuple[GoOperation, ...] = (
    _runtime(1, "cudaMalloc", "alloc", True),
    _runtime(2, "cudaFree", "free"),
    _runtime(3, "cudaLaunchKernel", "launch"),
    _runtime(4, "cudaMemcpy", "copy", True),
    _runtime(5, "cudaStreamSynchronize", "sync"),
    _runtime(6, "cudaDeviceSynchronize", "sync"),
    _runtime(7, "cudaMemcpyAsync", "copy", True),
    _runtime(8, "cudaMallocManaged", "alloc", True),
    _runtime(9, "cudaMemcpy2D", "copy"),  # its arg0 is the width alone
    _runtime(10, "cudaMemcpy2DAsync", "copy"),
    _runtime(11, "cudaMemcpyPeer", "copy", True),
    _runtime(12, "cudaMemcpyPeerAsync", "copy", True),
    _driver(1, "cuLaunchKernel", "launch"),
    _driver(2, "cuMemcpy", "copy", True),
    _driver(3, "cuMemcpyAsync", "copy", True),
    _driver(4, "cuCtxSynchronize", "sync"),
    _driver(5, "cuMemAlloc", "alloc", True),
    _driver(6, "cuMemAllocManaged", "alloc", True),
    _host(SWITCH, "sched_switch"),
    _host(WAKEUP, "sched_wakeup"),
    _host(PAGE_ALLOC, "mm_page_alloc", True),
    _host(OOM, "oom_kill"),
    _host(EXEC, "exec"),
    _host(EXIT, "exit"),
    _host(THREAD_EXIT, "thread_exit"),
    _host(TASK_EXIT, "task_exit"),
    _host(CLONE, "clone"),
    _host(10, "pod_restart"),
    _host(11, "pod_eviction"),
    _host(12, "pod_oom_kill"),
    _host(20, "mm_page_alloc_summary", True),
    _host(21, "sched_switch_summary"),
    GoOperation(Source.BLOCK_IO, READ, "block", "read"),
    GoOperation(Source.BLOCK_IO, 2, "block", "write"),
    GoOperation(Source.BLOCK_IO, 3, "block", "discard"),
    GoOperation(Source.TCP, 1, "tcp", "retransmit"),
    GoOperation(Source.SOCKET, 1, "socket", "sendto"),
    GoOperation(Source.SOCKET, 2, "socket", "recvfrom"),
    GoOperation(Source.GRAPH, 1, "graph", "cudaStreamBeginCapture", "graph"),
    GoOperation(Source.GRAPH, 2, "graph", "cudaStreamEndCapture", "graph"),
    GoOperation(Source.GRAPH, 3, "graph", "cudaGraphInstantiate", "graph"),
    GoOperation(Source.GRAPH, 4, "graph", "cudaGraphLaunch", "graph"),
)

CALLS = "(1, 4, 8)"  # sources of library calls, as SQL
FILE_OPS = frozenset((int(o.source), o.op) for o in ALL if o.op < THREAD_EXIT)  # as files number them
WITH_BYTES = tuple((int(o.source), o.op) for o in ALL if o.bytes_known)
