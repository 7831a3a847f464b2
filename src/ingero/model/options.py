"""What a trace was asked to do: every flag, variable and configuration key, resolved.

Values are parsed (bytes, nanoseconds, shares) and checked for sense here and now;
whether a process or container exists is for discovery to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ingero.model.pods import KubeletAccess

DEFAULT_MAX_DB_BYTES = 10 * 1024**3
DEFAULT_OVERHEAD_SHARE = 0.02
SOURCES = ("runtime", "driver", "graph", "nccl", "python", "sched", "memory", "block", "tcp", "xid", "gpu")


@dataclass(frozen=True)
class TraceOptions:
    """One run of `ingero trace`."""

    pids: tuple[int, ...] = ()  # empty: every CUDA process
    user: str | None = None
    container: str | None = None
    cgroup: Path | None = None
    duration_ns: int | None = None  # None: until stopped
    command: tuple[str, ...] = ()
    command_stdout_to_stderr: bool = False  # stdout is ours alone: --json
    command_as_root: bool = False  # under sudo too; otherwise it is the caller's
    record: bool = True
    record_all: bool = False
    db: Path | None = None  # None: the default path
    max_db_bytes: int = DEFAULT_MAX_DB_BYTES  # 0: no limit
    stack: bool = True
    max_overhead_share: float | None = DEFAULT_OVERHEAD_SHARE  # None: off
    node: str | None = None  # None: the host's name
    without: frozenset[str] = frozenset()
    ring_bytes: int | None = None  # None: the probes' own default
    kubelet: KubeletAccess | None = None  # None: not asked
    costly: bool = False  # also probe hot functions the kernel must single-step
    served: bool = False  # also probe library files that another program serves (FUSE)
