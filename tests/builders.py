"""Records, windows and operations for tests, which name only what matters to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingero.clock import Clock
from ingero.model import histogram, layout
from ingero.model.finding import (
    Cause,
    Effect,
    Finding,
    Fix,
    Gain,
    Proof,
    Severity,
    SourceLine,
    StackFrame,
    Unexplained,
    Victim,
    Who,
)
from ingero.model.layout import Bucket, CallFlag, Why
from ingero.model.operations import Operation
from ingero.model.report import (
    CodeLine,
    Loss,
    NotWatched,
    OperationLine,
    OverheadReport,
    ProcessReport,
    Report,
    ReportWindow,
    Stall,
    StepTime,
    SystemContext,
    ThreadLine,
)
from ingero.model.window import (
    BUCKET_NAMES,
    CULPRIT,
    OPERATION,
    SAMPLE,
    THREAD_TIME,
    WAKER,
    Process,
    Window,
)

SECOND = 1_000_000_000
EPOCH_NS = 1_700_000_000 * SECOND  # the wall clock of tests when monotonic time is 0

OPERATIONS = (
    Operation(1, "cudaLaunchKernel", "runtime", "launch", kernel_arg=0),
    Operation(2, "cudaMemcpy", "runtime", "copy", kind_arg=3, bytes_known=True),
    Operation(3, "cudaMalloc", "runtime", "alloc", bytes_known=True),
    Operation(4, "cudaFree", "runtime", "free"),
    Operation(5, "cudaStreamSynchronize", "runtime", "sync"),
    Operation(10, "cuLaunchKernel", "driver", "launch", kernel_arg=0),
    Operation(11, "cuMemcpyHtoDAsync_v2", "driver", "copy", direction="HtoD", bytes_known=True),
    Operation(20, "cudaGraphLaunch", "graph", "graph"),
    Operation(30, "ncclAllReduce", "nccl", "collective", bytes_known=True, dtype_arg=3, reduce_arg=4),
    Operation(31, "ncclSend", "nccl", "collective", bytes_known=True, dtype_arg=2, peer_arg=3),
    Operation(32, "ncclCommInitRank", "nccl", "comm"),
    Operation(40, "gc_collect_main", "python", "gc", arity=0),
)
NUMBERS = {operation.name: operation.number for operation in OPERATIONS}


class FakeTime:
    """Three clocks that move only when told."""

    def __init__(self) -> None:
        self.wall_ns, self.mono_ns, self.boot_ns = EPOCH_NS, 0, 0

    def advance(self, ns: int) -> None:
        self.wall_ns += ns
        self.mono_ns += ns
        self.boot_ns += ns

    def clock(self) -> Clock:
        return Clock(lambda: self.wall_ns, lambda: self.mono_ns, lambda: self.boot_ns)


def fixed_clock() -> Clock:
    """Monotonic 0 is EPOCH_NS, and stays so."""
    return FakeTime().clock()


def _header(record: Any, at_ns: int, pid: int, tid: int | None, comm: str | bytes, cgroup_id: int) -> None:
    h = record["h"]
    h["start_ns"], h["pid"], h["tid"], h["cgroup_id"] = at_ns, pid, pid if tid is None else tid, cgroup_id
    h["comm"] = comm.encode() if isinstance(comm, str) else comm


def split(**ns: int) -> NDArray[np.uint64]:
    """Time by bucket: split(gpu_wait=5, runqueue=3)."""
    values = np.zeros(int(Bucket.BUCKETS), np.uint64)
    for name, value in ns.items():
        values[BUCKET_NAMES.index(name)] = value
    return values


def call(
    op: str = "cudaLaunchKernel",
    took_ns: int = 5_000,
    *,
    at_ns: int = 0,
    pid: int = 100,
    tid: int | None = None,
    comm: str | bytes = "python",
    cgroup_id: int = 0,
    bytes: int | None = None,
    args: Iterable[int] = (),
    stream: int | None = None,
    out: int | None = None,
    gpu_id: int = -1,
    ret: int = 0,
    weight: int = 1,
    why: int = int(Why.WHY_SAMPLE),
    flags: int = 0,
    nested: bool = False,
    comm_hash: int | None = None,
    seq: int = 0,
    rank: int = -1,
    nranks: int = 0,
    time: Mapping[str, int] | None = None,
) -> NDArray[np.void]:
    """One finished call."""
    record = np.zeros(1, layout.CALL)
    row = record[0]
    _header(row, at_ns, pid, tid, comm, cgroup_id)
    row["op"], row["duration_ns"], row["weight"], row["why"] = NUMBERS[op], took_ns, weight, why
    row["gpu_id"], row["ret"], row["seq"], row["rank"], row["nranks"] = gpu_id, ret, seq, rank, nranks
    row["args"][: len(list(args))] = list(args)
    row["bytes"], row["stream"], row["out"] = bytes or 0, stream or 0, out or 0
    row["comm_hash"] = comm_hash or 0
    row["split"] = split(**(time or {"cuda_cpu": took_ns}))
    unknown = {CallFlag.CALL_NO_BYTES: bytes, CallFlag.CALL_NO_STREAM: stream, CallFlag.CALL_NO_OUT: out}
    flags |= sum(int(flag) for flag, value in unknown.items() if value is None)
    flags |= int(CallFlag.CALL_NESTED) if nested else 0
    row["flags"] = flags | (int(CallFlag.CALL_COMM_KNOWN) if comm_hash is not None else 0)
    return record


def wait(
    bucket: str = "lock_wait",
    took_ns: int = 2_000_000,
    *,
    at_ns: int = 0,
    pid: int = 100,
    tid: int | None = None,
    comm: str = "python",
    runqueue_ns: int = 0,
    syscall: int = -1,
    waker_kind: int = 0,
    waker_pid: int = 0,
    waker: str = "",
    op: str | None = None,
    address: int = 0,
    gil: int = 0,
    holder_tid: int = 0,
) -> NDArray[np.void]:
    """One finished off-CPU interval."""
    record = np.zeros(1, layout.WAIT)
    row = record[0]
    _header(row, at_ns, pid, tid, comm, 0)
    row["duration_ns"], row["runqueue_ns"], row["bucket"] = took_ns, runqueue_ns, BUCKET_NAMES.index(bucket)
    row["syscall"], row["waker_kind"], row["waker_pid"], row["waker_tid"] = (
        syscall,
        waker_kind,
        waker_pid,
        waker_pid,
    )
    row["waker"], row["op"] = waker.encode(), NUMBERS[op] if op else 0
    row["address"], row["gil"], row["holder_tid"] = address, gil, holder_tid
    return record


def sample(
    stack_hash: int,
    count: int = 1,
    *,
    pid: int = 100,
    tid: int | None = None,
    bucket: str = "host_cpu",
    op: str | None = None,
    flags: int = 0,
) -> NDArray[np.void]:
    """How often a thread was seen on a core in one place."""
    record = np.zeros(1, SAMPLE)
    row = record[0]
    row["pid"], row["tid"], row["stack_hash"] = pid, pid if tid is None else tid, stack_hash
    row["bucket"], row["op"] = BUCKET_NAMES.index(bucket), NUMBERS[op] if op else 0
    row["flags"], row["count"] = flags, count
    return record


def block(
    took_ns: int = 1_000_000,
    *,
    at_ns: int = 0,
    pid: int = 100,
    comm: str = "python",
    sector: int = 2048,
    size_bytes: int = 4096,
    write: int = 0,
    dev: int = 0x800000,
) -> NDArray[np.void]:
    """One finished block request."""
    record = np.zeros(1, layout.BLOCK)
    row = record[0]
    _header(row, at_ns, pid, None, comm, 0)
    row["duration_ns"], row["sector"], row["bytes"], row["write"], row["dev"] = (
        took_ns,
        sector,
        size_bytes,
        write,
        dev,
    )
    return record


def retransmit(
    *,
    at_ns: int = 0,
    pid: int = 0,
    dport: int = 443,
    address: tuple[int, ...] = (10, 0, 0, 1),
    peer_pid: int = 0,
) -> NDArray[np.void]:
    record = np.zeros(1, layout.TCP)
    row = record[0]
    _header(row, at_ns, pid, None, "swapper/0", 0)
    row["family"], row["sport"], row["dport"] = 2 if len(address) == 4 else 10, 40000, dport
    row["daddr"][: len(address)] = address
    row["peer_pid"] = peer_pid
    return record


def oom(*, at_ns: int = 0, pid: int = 100) -> NDArray[np.void]:
    record = np.zeros(1, layout.OOM)
    _header(record[0], at_ns, pid, None, "python", 0)
    record["total_vm_pages"], record["anon_rss_pages"] = 1000, 900
    return record


def xid(
    code: int = 79, *, at_ns: int = 0, message: bytes = b"GPU has fallen off the bus"
) -> NDArray[np.void]:
    record = np.zeros(1, layout.XID)
    _header(record[0], at_ns, 0, None, "", 0)
    record["code"], record["device"], record["message"] = code, b"0000:01:00.0", message
    return record


def operation(
    op: str = "cudaLaunchKernel",
    durations_ns: Iterable[int] = (5_000,),
    *,
    pid: int = 100,
    caller: int = 0,
    bytes: int = 0,
    errors: int = 0,
) -> NDArray[np.void]:
    """What one process did with one operation: every call's duration."""
    record = np.zeros(1, OPERATION)
    row = record[0]
    values = np.array(list(durations_ns), np.uint64)
    row["pid"], row["op"], row["caller"], row["count"] = pid, NUMBERS[op], caller, len(values)
    row["sum_ns"], row["min_ns"], row["max_ns"] = values.sum(), values.min(), values.max()
    row["bytes"], row["errors"] = bytes, errors
    np.add.at(row["slots"], histogram.slot_of(values), 1)
    return record


def thread(
    pid: int = 100,
    tid: int | None = None,
    comm: str = "python",
    estimated_ns: int = 0,
    spun_ns: int = 0,
    reclaiming_ns: int = 0,
    **ns: int,
) -> NDArray[np.void]:
    """Where a thread's time went: thread(tid=7, gpu_wait=900_000_000)."""
    record = np.zeros(1, THREAD_TIME)
    row = record[0]
    row["pid"], row["tid"], row["comm"], row["feeder"] = pid, pid if tid is None else tid, comm.encode(), True
    row["ns"], row["gil_ns"], row["estimated_ns"] = split(**ns), -1, estimated_ns
    row["spun_ns"], row["reclaiming_ns"] = spun_ns, reclaiming_ns
    return record


def culprit(
    victim_pid: int = 100, pid: int = 200, comm: str = "stress", ns: int = 5_000_000, throttled: bool = False
) -> NDArray[np.void]:
    record = np.zeros(1, CULPRIT)
    row = record[0]
    row["victim_pid"], row["victim_tid"], row["pid"], row["comm"] = victim_pid, victim_pid, pid, comm.encode()
    row["bucket"], row["throttled"], row["ns"], row["count"] = int(Bucket.RUNQUEUE), throttled, ns, 3
    return record


def waker(
    pid: int = 100, kind: int = 1, waker_pid: int = 300, comm: str = "pt_data_worker"
) -> NDArray[np.void]:
    record = np.zeros(1, WAKER)
    row = record[0]
    row["pid"], row["tid"], row["waker_pid"], row["waker_tid"] = pid, pid, waker_pid, waker_pid
    row["kind"], row["bucket"], row["comm"] = kind, int(Bucket.PEER_WAIT), comm.encode()
    row["ns"], row["count"] = 7_000_000, 2
    return record


def in_flight(
    op: str = "cudaStreamSynchronize",
    *,
    since_ns: int = 0,
    now_ns: int = SECOND,
    pid: int = 100,
    syscall: int = 202,
) -> NDArray[np.void]:
    """A thread inside a call that has not returned."""
    record = np.zeros(1, layout.THREAD_TOTALS)
    row = record[0]
    _header(row, 0, pid, None, "python", 0)
    row["now_ns"], row["call_start_ns"], row["open_ns"] = now_ns, since_ns, now_ns - since_ns
    row["call_op"], row["open_bucket"], row["syscall"] = NUMBERS[op], int(Bucket.GPU_WAIT), syscall
    return record


def process(pid: int = 100, start_ns: int = 0, **more: Any) -> Process:
    known: dict[str, Any] = {
        "comm": "python", "cmdline": "python train.py", "cgroup_id": 0, "uid": 1000,
    }  # fmt: skip
    return Process(pid, start_ns, **(known | more))


def records(*parts: NDArray[np.void]) -> NDArray[np.void]:
    return np.concatenate(parts)


def window(start_ns: int = 0, **parts: Any) -> Window:
    """One second from start_ns; lists of records are joined."""
    joined = {
        name: records(*value)
        if isinstance(value, (list, tuple)) and value and hasattr(value[0], "dtype")
        else value
        for name, value in parts.items()
    }
    made = Window(start_ns, start_ns + SECOND, **joined)
    if len(made.threads):
        late = made.threads["window_ns"] > 0
        made.threads["window_ns"] = np.where(late, made.threads["window_ns"], start_ns)
    return made


def finding(
    title: str = "Another process takes the CPU the GPU thread needs",
    severity: str = "HIGH",
    *,
    kind: str = "cpu-contention",
    pid: int = 100,
    comm: str = "python",
    wall_share: float | None = 0.4,
    gain_share: float = 0.35,
    **more: Any,
) -> Finding:
    """A finding with every field a detector fills."""
    known: dict[str, Any] = {
        "id": f"n1:{pid}",
        "first_ns": EPOCH_NS,
        "last_ns": EPOCH_NS + 8 * SECOND,
        "confidence": 0.92,
        "effect": Effect("step", 62_000_000, 110_000_000, 3_500_000_000, wall_share),
        "causes": [cause(), Cause("unexplained", 350_000_000, 0.1)],
        "explained_share": 0.9,
        "source": SourceLine("/home/a/train.py", 142, "forward"),
        "stack": [StackFrame("python", "forward", "/home/a/train.py", 142), StackFrame("native", None)],
        "gain": Gain(3_100_000_000, gain_share),
        "fix": [
            Fix("Give the job cores of its own.", "taskset -cp 0-5 100"),
            Fix("Let the others yield.", "renice -n 19 -p 200"),
        ],
        "episodes": [(EPOCH_NS, EPOCH_NS + 5 * SECOND), (EPOCH_NS + 6 * SECOND, EPOCH_NS + 8 * SECOND)],
    }
    return Finding(
        kind=kind, severity=Severity(severity), title=title, victim=Victim(pid, pid, comm), **(known | more)
    )


def cause(bucket: str = "runqueue", share: float = 0.9, **more: Any) -> Cause:
    sql = "SELECT sum(ns) FROM culprits WHERE victim_pid = 100"
    known: dict[str, Any] = {
        "who": [Who(200, "stress-ng", 2_100_000_000, "ml/noisy-0"), Who(201, "stress-ng", 900_000_000)],
        "evidence": [
            Proof("thread 100 waited 3.15 s for a core while stress-ng ran on it", sql, ["n1:4821"]),
            Proof("the cores were 97 % busy"),
        ],
        "via": ["python/100", "pt_data_worker/130"],
    }
    return Cause(bucket, 3_150_000_000, share, **(known | more))


def unexplained(pid: int = 100, comm: str = "python") -> Unexplained:
    text = "steps took 20 ms longer; no bucket grew by as much"
    return Unexplained(Victim(pid, pid, comm), EPOCH_NS, EPOCH_NS + SECOND, 400_000_000, 0.2, text)


def process_report(pid: int = 100, comm: str = "python", **more: Any) -> ProcessReport:
    time = {"gpu_wait": 9 * SECOND, "host_cpu": 6 * SECOND, "runqueue": 5 * SECOND}
    away = {"gpu_wait": 9 * SECOND, "runqueue": 5 * SECOND}
    known: dict[str, Any] = {
        "off_cpu": away,
        "cmdline": "python train.py",
        "container": "ml/train-0",
        "threads": [
            ThreadLine(pid, comm, True, 20 * SECOND, time, 800, 1200, away),
            ThreadLine(
                pid + 1,
                "pin_memory",
                False,
                20 * SECOND,
                {"lock_wait": 20 * SECOND},
                9,
                0,
                {"lock_wait": 20 * SECOND},
            ),
        ],
        "wall_ns": 20 * SECOND,
        "threads_ns": 20 * SECOND,
        "time": time,
        "operations": [
            OperationLine(
                "driver", "cuLaunchKernel", 47_360, True, 5_200, 9_000, 14_700, 32_300, 0.014, None
            ),
            OperationLine("runtime", "cudaMemcpyAsync", 12, False, None, None, None, None, 0.0, 4096),
        ],
        "step": StepTime("cudaStreamSynchronize", 290, 62_000_000, 110_000_000),
        "worst_stall": Stall(
            EPOCH_NS + SECOND, 609_000_000, "runqueue", "waiting for a core, while x (7) ran"
        ),
        "cpu_taken_ns": 0,
        "lines": [
            CodeLine("call", "/home/a/train.py", 142, "forward", 3 * SECOND, 290, 0.8, op="cudaMemcpy"),
            CodeLine(
                "cpu", "/home/a/data.py", 7, "load", 2 * SECOND, 98, 0.5, tid=100, collecting_share=0.25
            ),
            CodeLine("wait", None, None, "epoll_wait", SECOND, 40, 0.4, tid=100, bucket="disk_wait"),
            CodeLine("gil", "/home/a/log.py", 9, "dump", SECOND // 2, 20, 1.0, tid=101, held_ns=SECOND),
        ],
    }
    return ProcessReport(pid, comm, **(known | more))


def report(*findings: Finding, **more: Any) -> Report:
    """A diagnosis of twenty seconds; every victim has its process."""
    pids = dict.fromkeys([each.victim.pid for each in findings] or [100])
    known: dict[str, Any] = {
        "node": "gpu-node-01",
        "window": ReportWindow(EPOCH_NS, EPOCH_NS + 20 * SECOND, "recording"),
        "system": SystemContext(0.942, 0.781, 12.3, 8, 0, {"cpu_some": 0.6, "io_some": None}),
        "processes": [process_report(pid) for pid in pids],
        "losses": [],
        "overhead": OverheadReport(0.012, 0.02, 4200.0, 900.0, []),
        "not_watched": [],
        "recorded_ns": 20 * SECOND,
    }
    return Report(findings=list(findings), **(known | more))


def lossy(**more: Any) -> dict[str, Any]:
    """Parts of a report over which not everything was seen."""
    return {
        "losses": [Loss("ring_call", 12, EPOCH_NS, EPOCH_NS + SECOND)],
        "not_watched": [NotWatched("gil", "free-threaded interpreter"), NotWatched("xid", "no driver")],
        **more,
    }
