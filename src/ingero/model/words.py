"""What everything is called among people: one table for terminal, pages, reports, assistants and metrics.

The keys on the left stand in JSON, SQL and labels of metrics and never change. docs/glossary.md and
frontend/src/words.js are written from here (`make docs`).
"""

from __future__ import annotations

from typing import NamedTuple


class BucketWords(NamedTuple):
    """A place where a thread's time goes."""

    words: str  # "62 % waiting for a core"
    spent: str  # "the thread waited for a core 5 s of 8 s"
    does: str  # "it waits for a core longer in every step"
    means: str


# In the order in which every surface shows them: the GPU, what the job does, what holds it up.
BUCKETS: dict[str, BucketWords] = {
    "gpu_wait": BucketWords(
        "waiting for the GPU", "waited for the GPU", "waits for the GPU",
        "Inside a call that returns when the GPU is done, spinning or blocked.",
    ),
    "cuda_cpu": BucketWords(
        "inside CUDA calls", "computed inside CUDA calls", "is inside CUDA calls",
        "On a core, inside a traced CUDA or NCCL call.",
    ),
    "host_cpu": BucketWords(
        "on the CPU outside CUDA", "computed", "computes",
        "On a core, in the job's own code: Python, preparing data.",
    ),
    "runqueue": BucketWords(
        "waiting for a core", "waited for a core", "waits for a core",
        "Ready to run, but something else has the core, or the CPU quota is used up.",
    ),
    "lock_wait": BucketWords(
        "waiting for a lock", "waited for a lock", "waits for a lock",
        "Blocked on a lock or condition of the same program, Python's GIL among them.",
    ),
    "disk_wait": BucketWords(
        "waiting for disk", "waited for the disk", "waits for the disk",
        "Blocked until a file is read or written.",
    ),
    "memory_wait": BucketWords(
        "waiting for memory", "waited for memory", "waits for memory",
        "Blocked until Linux finds free memory, or in a page fault.",
    ),
    "peer_wait": BucketWords(
        "waiting for another process or thread", "waited for another process", "waits for another process",
        "Blocked on a pipe, a local socket or a child: a data loader's worker, for example.",
    ),
    "net_wait": BucketWords(
        "waiting for the network", "waited for the network", "waits for the network",
        "Blocked on a connection to another machine.",
    ),
    "sleep": BucketWords(
        "asleep on purpose", "slept", "sleeps",
        "In a sleep, or in a wait that only its timeout ended.",
    ),
    "unexplained": BucketWords(
        "not attributed", "spent on something unknown", "does something unknown",
        "None of the others: blocked in something unknown, stopped, or held by a debugger.",
    ),
    "lost": BucketWords(
        "not seen, records were dropped", "was not seen", "is not seen",
        "Records of it were dropped, so nobody knows.",
    ),
}  # fmt: skip

# Every kind of finding, as a sentence about the job.
KINDS: dict[str, str] = {
    "cpu-contention": "Another process takes the CPU the GPU thread needs",
    "cpu-throttled": "The job's CPU quota stops it",
    "noisy-neighbour": "Another container takes the CPU the GPU thread needs",
    "data-starvation": "The GPU waits for data",
    "disk-wait": "The job waits for the disk",
    "memory-pressure": "The job waits for memory",
    "oom-kill": "A process of the job was killed for memory",
    "pod-restart": "A pod of the job was restarted or evicted",
    "gil-contention": "Another Python thread holds the GIL",
    "gc-pause": "Python's garbage collector stops the job",
    "network-retransmits": "The job's connections lose packets",
    "slow-peer": "The job waits for another process's answers",
    "sync-heavy": "The job waits for the GPU too often",
    "launch-bound": "Launching CUDA kernels takes longer than running them",
    "copy-bound": "Copies to and from the GPU take the time",
    "alloc-churn": "GPU memory is allocated and freed in the loop",
    "gpu-memory-leak": "GPU memory grows without end",
    "cuda-oom": "The GPU is out of memory",
    "cold-start": "Start-up: contexts and code are loaded",
    "periodic-spike": "The job stalls at regular intervals",
    "graph-trouble": "CUDA graphs are made again and again",
    "gpu-shared": "Another process works on the same GPU",
    "nccl-straggler": "All ranks wait for one",
    "nccl-hang": "A collective hangs",
    "collective-imbalance": "Ranks wait for each other in turns",
    "gpu-throttled": "The GPU runs below its clock",
    "gpu-fault": "The GPU reported a fault",
    "cuda-error": "CUDA calls fail",
    "version-mismatch": "Driver and CUDA runtime do not fit",
    "underutilised": "The GPU has too little to do",
    "slowdown": "The job became slower",
    "gpu-idle": "The GPU is idle though there is work",
    "managed-thrash": "Managed memory moves back and forth between host and GPU",
    "kv-cache-pressure": "The serving engine's cache is full",
    "head-of-line": "Long requests hold up short ones",
}

# What a recording is made of; without it some kinds cannot be looked for.
SOURCES: dict[str, str] = {
    "calls": "CUDA and NCCL calls, counted and timed",
    "sched": "where the time of threads went, and who had the core they waited for",
    "wakers": "who ended the waits of a thread",
    "culprits": "who had the core that a thread waited for",
    "memory": "reclaim, page faults and OOM kills",
    "gil": "which waits were for Python's interpreter lock",
    "gc": "the runs of Python's garbage collector",
    "tcp": "packets sent again",
    "nccl": "which rank came when to which collective",
    "xid": "faults the NVIDIA driver reports",
    "pods": "restarts and evictions of pods, as the kubelet tells them",
    "gpu": "the counters of the GPUs, and who is on them (NVML)",
}

# The heading of every column of a table on a terminal, in a report or on a page, in lower case.
COLUMNS: dict[str, str] = {
    "after": "In the second of two recordings.",
    "after, per step": "In the second of two recordings, for one step.",
    "at": "When it happened.",
    "before": "In the first of two recordings.",
    "before, per step": "In the first of two recordings, for one step.",
    "busy": "Share of the time in which the GPU worked.",
    "bytes": "How much was moved.",
    "call": "The function that was called.",
    "calls": "How often it was called; ~ marks an estimate, ± its error; rough: too few seen to count well.",
    "came last": "How often the others waited for this rank.",
    "captured": "How often a CUDA graph was recorded.",
    "cause": "What the time was lost to.",
    "cluster": "The group of machines this one belongs to.",
    "container": "The container the process runs in.",
    "cost": "Price of the time GPUs were kept.",
    "cpu taken": "Time it had a core that the job waited for.",
    "errors": "Calls that returned an error.",
    "failed": "Calls that returned an error.",
    "feeds": "Whether the thread gives work to the GPU.",
    "first": "When it was first seen.",
    "flags": "What is odd about it: slower than before, errors.",
    "from": "When it began.",
    "goodput": "Steps that counted, of all the job made: one done again after a restart is lost.",
    "gpu busy": "Share of the time in which the GPU worked.",
    "gpu memory": "Memory of the GPU that is in use.",
    "gpus": "How many GPUs.",
    "graph": "One CUDA graph.",
    "held": "How long it lasted, or how long GPUs were kept.",
    "idle": "Time GPUs were kept and did nothing, and no finding says why.",
    "instantiated": "How often a CUDA graph was made ready to launch.",
    "jobs": "Processes that give work to a GPU.",
    "kernel": "A function that runs on the GPU.",
    "kind": "Which problem; docs/detectors has a page for each.",
    "last": "When it was last seen.",
    "launched": "How often a CUDA graph was started.",
    "launches": "How often it was started on the GPU.",
    "line": "Function, file and line of the program.",
    "longest": "The longest single wait.",
    "longest call": "The longest single call.",
    "lost": "Time GPUs were kept and waited, because of a finding.",
    "making them took": "Time spent on recording and preparing CUDA graphs.",
    "max": "The longest call.",
    "mean call": "Mean duration of a call.",
    "memory": "Memory of the GPU that the process holds.",
    "more would fit": "How many more such jobs the GPUs have room for.",
    "most of it": "What most of that time was spent on.",
    "most time from": "The line of the program that most of its time comes from.",
    "node": "The machine.",
    "off-cpu": "Share of its time in which the thread had no core: it waited or slept.",
    "operation": "The function that was called.",
    "p50": "Half of the calls took no longer.",
    "p95": "95 of 100 calls took no longer.",
    "p99": "99 of 100 calls took no longer.",
    "pace": "Steps a second, against what the job itself usually makes.",
    "pace against its best": "Steps a second, against the best the job made.",
    "per second": "How often in a second.",
    "pid": "Number of the process.",
    "process": "Name and number of the process.",
    "rank": "Number of the process within a distributed job.",
    "returned": "The code the call returned; 0 is success.",
    "saved if fixed": "What the lost time cost.",
    "seen in it": "Share of the time that is known to lie in it; the rest is spread over its second.",
    "severity": "How bad: CRITICAL, HIGH, MEDIUM, LOW.",
    "share": "Part of the whole.",
    "sm clock": "Clock of the GPU while it computed, of the highest it can have.",
    "state": "How the machine does, compared with the others.",
    "step": "What was done with the CUDA graph.",
    "switches": "How often the thread left its core: on its own, and because it was made to.",
    "thread": "Name of the thread.",
    "tid": "Number of the thread.",
    "time": "Time spent on it.",
    "times": "How often it was seen.",
    "to": "When it ended.",
    "took": "How long it lasted.",
    "took cores from them": "Who had a core that one of the job's threads waited for.",
    "total": "Time of all calls together.",
    "unknown": "Time of which it is not known.",
    "updated": "How often a CUDA graph was changed in place.",
    "waited for the last": "Time spent waiting for the last rank to arrive.",
    "waiting or running": "What the threads that feed the GPU did.",
    "waits ≥1 ms": "How many waits lasted a millisecond or more.",
    "wall": "Share of the time on the clock.",
    "what": "What was found.",
    "what it does": "What the time on that line was.",
    "where the time went": "What the threads did, or what they waited for.",
    "who": "Which processes, with the time they had.",
    "why": "What makes it so.",
}

# Of records that were not kept, on every surface: `lost` is time.
DROPPED = "dropped"

# Words the answers use.
TERMS: dict[str, str] = {
    "accounted time": "Every nanosecond of a thread is in exactly one bucket; they sum to 100 %.",
    "bound by": "What limits a job now: the GPU, its own work, a wait.",
    "bucket": "One of the places where time can go.",
    "budget": "The most that tracing may cost a job: 2 %, or what `--max-overhead` says. To stay within it,"
    " ingero takes fewer stacks and times fewer calls; all are counted.",
    "collective": "An operation of NCCL that all ranks of a job take part in.",
    "confidence": "How sure the diagnosis is that this is the cause.",
    "CUDA kernel": "A function that runs on the GPU. The kernel of the operating system is the Linux kernel.",
    DROPPED: "Records that were not kept. They are counted, and every answer says how many.",
    "feeding thread": "A thread that gives work to the GPU.",
    "finding": "A problem, with its proof, its cause and a fix.",
    "gain": "Time the job wins when the cause is gone.",
    "job": "A process that gives work to a GPU, with its threads and children.",
    "lost": "Time a job lost.",
    "node": "A machine.",
    "not covered": "What could not be seen, and why. It is never taken for fine.",
    "overhead": "What tracing cost the job.",
    "pace": "Steps a second.",
    "probe": "A place in a library or in the Linux kernel where ingero notes what happens.",
    "recording": "The SQLite file that a trace leaves.",
    "step": "One iteration of the job's loop.",
    "wall time": "Time on the clock.",
}

BUCKET_WORDS = {name: each.words for name, each in BUCKETS.items()}


def bucket_words(bucket: str) -> str:
    """`waiting for a core`; what is not known keeps its name."""
    known = BUCKETS.get(bucket)
    return known.words if known else bucket


def kind_words(kind: str) -> str:
    """`The GPU waits for data`; what is not known keeps its name."""
    return KINDS.get(kind, kind)


def covered_words(what: str, why: str) -> tuple[str, str]:
    """What is not covered, and why: a kind of finding by its sentence, a source without its key."""
    kind = next((each for each in (what.partition(" ")[0], what.partition(",")[0]) if each in KINDS), "")
    source, said, reason = why.partition(" is not recorded: ")
    return (
        f"{kind_words(kind)}{what.removeprefix(kind)}",
        f"not recorded: {reason}" if said and source in SOURCES else why,
    )
