"""What every view and column means, in one place.

`ingero query --schema`, docs/schema.md and the assistants' tools show this; a test
holds it against the real database. The tables behind the views are not described:
they may change.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingero.model.window import BUCKET_NAMES
from ingero.serve.answers.schema_tenants import TENANT_VIEWS


@dataclass(frozen=True, slots=True)
class ViewDoc:
    name: str
    about: str
    columns: dict[str, str]


NOTES = (
    "COUNT(*) over events, cuda_events, calls and nccl_events counts stored rows; SUM(weight) counts calls,"
    " because a row may stand for several; SUM(duration_ns * weight) is their time.",
    "A cgroup_id names one cgroup of one node. In merged databases, a number that two nodes both have is"
    " replaced.",
    "Counts in operations are the calls made, exact unless exact is 0 (see not_watched of explain).",
    "Instants ending in _ns, and events.timestamp, are Unix-epoch nanoseconds; durations are nanoseconds.",
    "Unknown is NULL, never 0.",
    "An id is node:number, such as gpu-node-01:4821. It stays the same when databases are merged, with one"
    " exception: of two databases of one node, the second gets new numbers.",
    "Buckets of accounted time: " + " ".join((*BUCKET_NAMES, "lost")) + ".",
)

_ID = "The row's name, node:number."
_NODE = "The machine it happened on."
_PID = "The process."
_TID = "The thread."
_CGROUP = "The process's cgroup; joins containers.cgroup_id."
_CARD = "The GPU's number, as nvidia-smi shows it; joins gpu_id of events."
_BUCKET_START = "Start of the interval, usually one second long."
_CALL = {
    "id": _ID,
    "node": _NODE,
    "timestamp_ns": "When the call began.",
    "pid": _PID,
    "tid": _TID,
    "gpu_id": "The thread's device at that time, as CUDA numbers it.",
    "layer": "runtime, driver or graph (in calls also nccl): where the probe sat.",
    "op": "The function called, as the library spells it.",
    "caller": "runtime when a CUDA runtime made this driver call, direct when the program did.",
    "kernel_name": "The kernel launched, or the place in a file (libx.so+0x1f40) where one without a name"
    " is, or is launched.",
    "duration_ns": "From entry to return.",
    "bytes": "Bytes copied, set or allocated; of a call that failed, those it asked for.",
    "direction": "HtoD, DtoH, DtoD or HtoH, for copies that tell.",
    "stream": "The stream's handle; 0 is the default stream.",
    "ret": "What the call returned; 0 is success.",
    "cgroup_id": _CGROUP,
    "stack_hash": "Where it was called from; joins stacks.stack_hash.",
    "weight": "How many calls this row stands for.",
}

VIEWS: tuple[ViewDoc, ...] = (
    ViewDoc(
        "events",
        "Everything that happened and was stored as a row of its own, of all sources.",
        {
            "id": _ID,
            "node": _NODE,
            "timestamp": "When it began, Unix-epoch nanoseconds.",
            "pid": _PID,
            "tid": _TID,
            "comm": "The thread's command name.",
            "source": "1 CUDA runtime, 3 host, 4 CUDA driver, 5 block I/O, 6 TCP, 7 socket,"
            " 8 CUDA graph, 9 NCCL.",
            "op": "The function, or for the host the bucket waited in, fork, exec, exit, oom_kill, xid,"
            " Python's collector (collections of a millisecond and longer);"
            " read, write, discard, flush; retransmit.",
            "duration": "How long it took, nanoseconds.",
            "gpu_id": "The thread's device at that time.",
            "arg0": "Calls: bytes where known, else the first argument, of graph calls a handle: NULL where"
            " it is not known, never 0; waits: the waker's PID;"
            " block I/O: the sector; xid: the code; TCP: the local port; oom_kill: pages mapped;"
            " fork and exit: the parent.",
            "arg1": "Calls: the second argument; waits: the system call's number; block I/O: bytes;"
            " TCP: the remote port; oom_kill: anonymous pages held.",
            "ret_code": "What the call returned; exit: the exit code; block I/O: the error.",
            "stack_hash": "Where it was called from; joins stacks.stack_hash.",
            "cgroup_id": _CGROUP,
            "rank": "The process's rank in its job.",
            "local_rank": "The process's rank on this machine.",
            "world_size": "How many ranks the job has.",
            "weight": "How many calls this row stands for.",
        },
    ),
    ViewDoc(
        "cuda_events", "Calls of the CUDA runtime, driver and graph functions, nested ones included.", _CALL
    ),
    ViewDoc(
        "calls",
        "One row per call the application made, NCCL included; calls made inside another are left out.",
        _CALL,
    ),
    ViewDoc(
        "nccl_events",
        "Calls of NCCL functions.",
        {
            "id": _ID,
            "node": _NODE,
            "timestamp_ns": "When the call began: the rank's arrival.",
            "pid": _PID,
            "tid": _TID,
            "op": "The function called.",
            "comm_hash": "Names the communicator, the same on all its ranks (16 hexadecimal digits);"
            " NCCL's own commId where it can be read.",
            "seq": "Number of the collective on its communicator, from 0; NULL where that was made before"
            " the trace began, because ranks may have been met at different ones.",
            "rank": "The caller's rank in the communicator.",
            "nranks": "How many ranks the communicator has.",
            "bytes": "Elements times the size of their type.",
            "datatype": "The element type, such as float16 or bfloat16.",
            "reduce_op": "sum, prod, max, min or avg; NULL for operations of the program's own.",
            "peer": "The other rank of a send or receive.",
            "duration_ns": "From entry to return; collectives usually return before they are done.",
            "wait_ns": "The last rank's arrival minus this one's; NULL unless all ranks were seen.",
            "cgroup_id": _CGROUP,
            "weight": "How many calls this row stands for.",
        },
    ),
    ViewDoc(
        "containers",
        "What a cgroup stands for.",
        {
            "cgroup_id": "The cgroup's number on its node.",
            "node": _NODE,
            "container_id": "The container's full id.",
            "runtime": "containerd, cri-o, docker or podman.",
            "pod": "The Kubernetes pod.",
            "namespace": "The Kubernetes namespace.",
            "job": "The batch system's job, such as a Slurm job and step.",
        },
    ),
    ViewDoc(
        "operations",
        "Every call counted: one row per process, operation and interval.",
        {
            "node": _NODE,
            "pid": _PID,
            "layer": "runtime, driver, graph or nccl; python for garbage collections.",
            "op": "The function called.",
            "caller": "runtime or direct, for driver calls where it is known.",
            "bucket_start_ns": _BUCKET_START,
            "count": "Calls made.",
            "exact": "1 when count is exact; 0 when it is an estimate, or the first calls are missing.",
            "count_error": "How far an estimated count may be off.",
            "sum_ns": "Time inside these calls, added up.",
            "min_ns": "The shortest call.",
            "max_ns": "The longest call.",
            "p50_ns": "Half of the calls were shorter; within one eighth.",
            "p95_ns": "95 % of the calls were shorter; within one eighth.",
            "p99_ns": "99 % of the calls were shorter; within one eighth.",
            "bytes": "Bytes moved or allocated by those that succeeded.",
        },
    ),
    ViewDoc(
        "thread_time",
        "Where each watched thread's wall time went: the buckets of one thread and interval add up to it.",
        {
            "node": _NODE,
            "pid": _PID,
            "tid": _TID,
            "comm": "The thread's command name.",
            "bucket_start_ns": _BUCKET_START,
            "bucket": "What the time was spent on.",
            "ns": "How much.",
        },
    ),
    ViewDoc(
        "call_time",
        "How the duration of each stored call divides.",
        {
            "id": "The call, as in events and cuda_events.",
            "bucket": "What the time was spent on.",
            "ns": "How much.",
        },
    ),
    ViewDoc(
        "culprits",
        "Who ran while a watched thread waited for a core.",
        {
            "node": _NODE,
            "victim_pid": "The process that waited.",
            "victim_tid": "The thread that waited.",
            "pid": "Who ran on that core meanwhile; NULL for a CPU quota.",
            "comm": "Its command name, or [cpu quota].",
            "bucket": "What the victim's time counted as.",
            "bucket_start_ns": _BUCKET_START,
            "ns": "How long the victim waited for it.",
            "count": "How many times.",
        },
    ),
    ViewDoc(
        "wakers",
        "Who ended a watched thread's waits.",
        {
            "node": _NODE,
            "pid": "The process that waited.",
            "tid": "The thread that waited.",
            "waker_pid": "Who woke it; NULL for an interrupt.",
            "waker_tid": "The thread that woke it.",
            "waker": "Its command name, or irq:timer, irq:block, irq:net, irq:other.",
            "bucket_start_ns": _BUCKET_START,
            "ns": "How long the waits were that it ended.",
            "count": "How many.",
        },
    ),
    ViewDoc(
        "findings",
        "Problems found.",
        {
            "id": "As explain names it: node:kind:pid:second the recording began.",
            "node": _NODE,
            "kind": "The detector's name, such as cpu-contention.",
            "severity": "CRITICAL, HIGH, MEDIUM or LOW.",
            "title": "One line for people.",
            "first_ns": "When it was first seen.",
            "last_ns": "When it was last seen.",
            "confidence": "How sure we are, 0 to 1.",
            "pid": "The process that suffers.",
            "tid": "The thread that suffers.",
            "op": "The operation that became slow.",
            "excess_ns": "Time lost against the usual.",
            "wall_share": "Share of the wall time lost.",
            "explained_share": "Share of the excess its causes explain.",
            "source_file": "The Python file it comes from.",
            "source_line": "The line in it.",
            "source_function": "The function in it.",
            "json": "The whole finding, as explain --json prints it.",
        },
    ),
    ViewDoc(
        "unfinished_calls",
        "Calls that never returned while they were watched: they were in progress when the trace ended, or"
        " their thread ended in them. While the trace runs only those that last a second or longer; at its"
        " end all. They have no row in cuda_events, calls and nccl_events, and no count includes them.",
        {
            "node": _NODE,
            "timestamp_ns": "When the call began; where entered is 0, when it was surely under way.",
            "pid": _PID,
            "tid": "The thread.",
            "comm": "The thread's command name.",
            "layer": "runtime, driver, graph or nccl: where the probe sat.",
            "op": "The function called, as the library spells it.",
            "duration_ns": "How long it had lasted at the last look, at least.",
            "bucket": "What the thread was in then.",
            "entered": "0: it began before its library was watched, and was found on the thread's stack.",
            "died": "1: the thread ended in it, as when the process is killed; 0: nobody saw its end.",
        },
    ),
    ViewDoc(
        "losses",
        "What is missing, by reason.",
        {
            "node": _NODE,
            "start_ns": "From when.",
            "end_ns": "Until when.",
            "reason": "Why, such as ring_call (ring full) or store_backlog (database not writable).",
            "count": "How many records.",
        },
    ),
    ViewDoc(
        "processes",
        "The processes traced; a PID may appear several times, with different starts.",
        {
            "node": _NODE,
            "pid": _PID,
            "start_ns": "When it started.",
            "end_ns": "When it ended; NULL while it runs or if nobody saw.",
            "comm": "Its command name.",
            "cmdline": "Its command line.",
            "cgroup_id": _CGROUP,
            "rank": "Its rank in its job.",
            "local_rank": "Its rank on this machine.",
            "world_size": "How many ranks the job has.",
            "uid": "The user it runs as.",
        },
    ),
    ViewDoc(
        "bystanders",
        "Processes that were not traced but took a core from, woke or shared a disk with one that was:"
        " what is behind a PID in culprits and wakers. Only those that mattered are looked up.",
        {
            "node": _NODE,
            "pid": "The process; joins culprits.pid and wakers.waker_pid.",
            "start_ns": "When it started.",
            "comm": "Its command name.",
            "cmdline": "Its command line; empty for a thread of the kernel.",
            "cgroup_id": _CGROUP,
            "parent_pid": "Its parent.",
            "uid": "The user it runs as.",
        },
    ),
    ViewDoc(
        "annotations",
        "What jobs said of themselves (`ingero annotate`): their steps, epochs, requests. A label holds from"
        " start_ns to end_ns for the process and those it started.",
        {
            "node": _NODE,
            "pid": "The process that said it, or of which it was said.",
            "key": "What is told, as in step.",
            "value": "Its value, as in 120.",
            "number": "The value where it is a whole number.",
            "start_ns": "When it was said.",
            "end_ns": "When its next value was, or the process or the recording ended.",
        },
    ),
    ViewDoc(
        "gpus",
        "The GPUs of a machine, as their driver describes them (NVML).",
        {
            "node": _NODE,
            "gpu_id": _CARD,
            "uuid": "The GPU's own name, the same in every machine.",
            "name": "The product.",
            "bus_id": "Where it sits on the PCI bus.",
            "driver": "Version of the driver.",
            "memory_bytes": "Memory of the GPU.",
            "sm_clock_max_mhz": "The highest clock of its processors.",
            "memory_clock_max_mhz": "The highest clock of its memory.",
            "sm_clock_set_mhz": "The applications clock, as set when last seen.",
            "sm_clock_default_mhz": "The applications clock it comes with.",
            "power_limit_default_mw": "The power limit it comes with, milliwatts.",
            "slowdown_c": "From this temperature on the hardware slows down, degrees Celsius.",
            "pcie_gen_max": "The highest PCI Express generation GPU and slot can do.",
            "pcie_width_max": "The most lanes GPU and slot can do.",
            "compute_mode": "default, exclusive_process or prohibited.",
            "mig": "1: divided into instances (MIG), whose use is not told apart.",
            "unsupported": "Questions GPU or driver do not answer; their columns are NULL.",
            "first_ns": "When it was first seen.",
            "last_ns": "When its description was last seen to change.",
        },
    ),
    ViewDoc(
        "gpu_samples",
        "Each GPU once a second, as its driver tells (NVML).",
        {
            "node": _NODE,
            "gpu_id": _CARD,
            "timestamp_ns": "When it was asked.",
            "gpu_share": "Part of the last second in which a kernel ran, 0 to 1; not how full the GPU was.",
            "memory_busy_share": "Part of the time its memory was read or written, 0 to 1.",
            "memory_used_bytes": "Memory in use, of all processes, without what the driver keeps.",
            "sm_clock_mhz": "Clock of the processors.",
            "memory_clock_mhz": "Clock of the memory.",
            "reasons": "Why the clock is not higher: the driver's bits.",
            "reason_names": "The same in words, with spaces between; empty where none is set.",
            "power_mw": "Power drawn, milliwatts.",
            "power_limit_mw": "The limit in force, milliwatts.",
            "temperature_c": "Of the chip, degrees Celsius.",
            "memory_temperature_c": "Of the memory, degrees Celsius.",
            "pcie_gen": "PCI Express generation of the link now; idle GPUs lower it.",
            "pcie_width": "Lanes of the link now.",
            "pcie_rx_bytes_per_s": "Bytes a second to the GPU, over the last 20 ms.",
            "pcie_tx_bytes_per_s": "Bytes a second from the GPU, over the last 20 ms.",
            "ecc_corrected": "Memory errors put right since the driver was loaded.",
            "ecc_uncorrected": "Memory errors not put right since the driver was loaded.",
            "ecc_corrected_ever": "The same over the GPU's life.",
            "ecc_uncorrected_ever": "The same over the GPU's life.",
            "rows_remapped": "Rows of memory replaced by spare ones.",
            "remap_pending": "1: a row will be replaced at the next reset.",
            "remap_failed": "1: a row could not be replaced.",
            "power_capped_ns": "Time since the sample before in which the power limit held the clock down.",
            "heat_capped_ns": "Time since the sample before in which heat held the clock down.",
            "lost": "1: the GPU did not answer any more.",
            "asking_ns": "What reading this row took.",
        },
    ),
    ViewDoc(
        "gpu_processes",
        "Who is on a GPU, once a second, traced or not (NVML).",
        {
            "node": _NODE,
            "gpu_id": _CARD,
            "timestamp_ns": "When it was asked.",
            "pid": _PID,
            "comm": "Its command name; NULL when it was gone or is not to be seen from here.",
            "memory_bytes": "Memory of the GPU that it holds.",
            "sm_share": "Part of the last second in which its kernels ran, 0 to 1.",
            "graphics": "1: it draws.",
        },
    ),
    ViewDoc(
        "samples",
        "Where threads were on a core, by a clock of 49 a second: the threads that feed a GPU and those"
        " that wake them. One row per thread, place, state and interval.",
        {
            "node": _NODE,
            "pid": _PID,
            "tid": _TID,
            "bucket_start_ns": _BUCKET_START,
            "stack_hash": "Where it was; joins stacks.stack_hash.",
            "bucket": "What the time counted as.",
            "op": "The traced call it was in.",
            "collecting": "1 when Python's garbage collector was at work.",
            "gil": "1 when the thread held its interpreter's lock.",
            "kernel": "1 when it was in the kernel.",
            "count": "How often; one sample stands for 20.4 ms on a core.",
        },
    ),
    ViewDoc(
        "stacks",
        "Where calls, waits and samples come from: one row per frame.",
        {
            "stack_hash": "Names the stack.",
            "depth": "0 is the innermost frame.",
            "kind": "python, native, or note: words about what could not be read.",
            "function": "The function.",
            "file": "The source file.",
            "line": "The line being executed.",
            "module": "The library or Python module.",
        },
    ),
    ViewDoc(
        "overhead",
        "What tracing cost the thread that it cost most, as a share of its time, per interval.",
        {
            "node": _NODE,
            "bucket_start_ns": _BUCKET_START,
            "share": "Of that thread's time: hits times what a hit costs on this machine.",
            "watched_share": "Of the interval, the part in which everything was watched.",
        },
    ),
    ViewDoc(
        "own_cost",
        "What the agent itself took, and what its scheduler programs cost others, per interval. Cores that"
        " the agent took from a job are in culprits, as `ingero itself`.",
        {
            "node": _NODE,
            "bucket_start_ns": _BUCKET_START,
            "agent_cpu_ns": "CPU time of the agent.",
            "switches": "Context switches of threads that are not traced.",
            "switches_ns": "What they cost more: times what one costs on this machine; NULL where that is not"
            " known.",
        },
    ),
    ViewDoc(
        "clock_offsets",
        "How far the clocks of merged nodes are apart, where it was measured or given. Times in the other"
        " views are as recorded: take offset_ns off to compare nodes.",
        {
            "node": _NODE,
            "from_ns": "From this instant of the node's own on, up to its next row; 0: from the beginning.",
            "offset_ns": "The node's clock is ahead by this much; negative: behind.",
            "error_ns": "The truth lies within this; NULL where nobody knows.",
            "rate": "What it gains in each nanosecond from then on.",
            "how": "given (`merge --clock-offset`) or measured (when the nodes were asked).",
        },
    ),
    ViewDoc(
        "governor_actions",
        "What was watched less, or more again, to keep the overhead within its budget.",
        {
            "node": _NODE,
            "at_ns": "When.",
            "what": "What is watched differently from then on.",
            "before": "How it was watched.",
            "after": "How it is watched.",
            "why": "What tracing would have cost, and what is expected now.",
            "watched_share": "Of the time, how much of it is watched.",
        },
    ),
    ViewDoc(
        "thread_estimates",
        "Time in thread_time that is in cuda_cpu or host_cpu by estimate: calls were not watched then.",
        {
            "node": _NODE,
            "pid": _PID,
            "tid": _TID,
            "bucket_start_ns": _BUCKET_START,
            "ns": "So much of the interval's time.",
        },
    ),
    *(ViewDoc(*each) for each in TENANT_VIEWS),
    ViewDoc(
        "stack_text",
        "The same stacks to read: one row each, as in `forward() at train.py:142 < step() at train.py:90`.",
        {
            "stack_hash": "Names the stack.",
            "text": "Its frames, the innermost first.",
        },
    ),
)
