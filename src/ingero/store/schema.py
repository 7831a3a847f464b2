"""The tables behind the views users query.

Every kind of event lives in one table, `event`, so that a GROUP BY over all of
them is one scan and not a union; what only waits, block requests or collectives
have is in side tables with the same id. An id is node << 48 | number on that node.
A stack is one row, a JSON array of frames, innermost first; a frame's texts are kept
once (number 0: none), because thousands of stacks share them.
These tables are ours to change; what scripts rely on is in views.py.
"""

from __future__ import annotations

from ingero.model.window import BUCKET_NAMES

NODE_SHIFT = 48
SEQ_MASK = (1 << NODE_SHIFT) - 1
BUCKET_COLUMNS = tuple(f"{name}_ns" for name in BUCKET_NAMES)
ON_CORE = ("spun_ns", "reclaiming_ns")  # of gpu_wait_ns and memory_wait_ns; NULL: not known
GAP_COLUMNS = tuple(f"gap_{name}" for name in BUCKET_COLUMNS)
_GAPS = ", ".join(f"{column} INTEGER NOT NULL DEFAULT 0" for column in GAP_COLUMNS)
_BUCKETS = ", ".join(f"{column} INTEGER NOT NULL DEFAULT 0" for column in BUCKET_COLUMNS)

_SCRIPT = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY, value TEXT
) WITHOUT ROWID;

CREATE TABLE node (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, next_seq INTEGER NOT NULL DEFAULT 1,
    rolled_id INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE string (
    id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE
);

CREATE TABLE kernel (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, short TEXT NOT NULL, known INTEGER NOT NULL
);

CREATE TABLE op (
    id INTEGER PRIMARY KEY, source INTEGER NOT NULL, layer TEXT NOT NULL, name TEXT NOT NULL,
    kind TEXT NOT NULL, bytes_known INTEGER NOT NULL DEFAULT 0, UNIQUE (layer, name)
);

CREATE TABLE bucket (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE
);

CREATE TABLE recording (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, boot_id TEXT, version TEXT, command TEXT,
    cores INTEGER, agent_pid INTEGER, started_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
    ended_ns INTEGER, absent TEXT, ns_per_hit REAL, budget REAL
);

CREATE TABLE window (
    recording_id INTEGER NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    node_id INTEGER NOT NULL, first_id INTEGER NOT NULL, last_id INTEGER NOT NULL, hits INTEGER,
    agent_cpu_ns INTEGER, PRIMARY KEY (recording_id, start_ns)
) WITHOUT ROWID;

CREATE TABLE clock_step (
    node_id INTEGER NOT NULL, recording_id INTEGER NOT NULL, at_ns INTEGER NOT NULL,
    wall_ns INTEGER NOT NULL, delta_ns INTEGER NOT NULL, adopted INTEGER NOT NULL
);

CREATE TABLE process (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, pid INTEGER NOT NULL, boot_id TEXT,
    start_tick INTEGER, start_ns INTEGER, first_seen_ns INTEGER, end_ns INTEGER, exit_code INTEGER,
    parent_pid INTEGER, comm TEXT, cmdline TEXT, cgroup_id INTEGER, uid INTEGER, rank INTEGER,
    local_rank INTEGER, world_size INTEGER, target INTEGER NOT NULL DEFAULT 1,
    listens INTEGER, cpus TEXT
);

CREATE UNIQUE INDEX process_identity ON process (node_id, pid, boot_id, start_tick);

CREATE TABLE container (
    node_id INTEGER NOT NULL, cgroup_id INTEGER NOT NULL, cgroup_path TEXT, container_id TEXT, runtime TEXT,
    pod TEXT, namespace TEXT, job TEXT, PRIMARY KEY (cgroup_id, node_id)
) WITHOUT ROWID;

CREATE TABLE event (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, source INTEGER NOT NULL, op_id INTEGER NOT NULL,
    ts_ns INTEGER NOT NULL, pid INTEGER, tid INTEGER, process_id INTEGER, comm_id INTEGER,
    cgroup_id INTEGER, duration_ns INTEGER, weight INTEGER NOT NULL DEFAULT 1, flags INTEGER, why INTEGER,
    depth INTEGER, gpu_id INTEGER, ret INTEGER, arg0 INTEGER, arg1 INTEGER, bytes INTEGER, stream INTEGER,
    out INTEGER, direction INTEGER, stack_hash INTEGER, kernel_id INTEGER, @BUCKETS@
);

CREATE TABLE wait_detail (
    event_id INTEGER PRIMARY KEY, bucket INTEGER NOT NULL, runqueue_ns INTEGER NOT NULL,
    waker_kind INTEGER NOT NULL, waker_pid INTEGER, waker_tid INTEGER, waker_id INTEGER, call_op_id INTEGER,
    throttled INTEGER NOT NULL, dev INTEGER, sector INTEGER, address INTEGER, gil INTEGER,
    holder_tid INTEGER
);

CREATE TABLE block_detail (
    event_id INTEGER PRIMARY KEY, queued_ns INTEGER NOT NULL, dev INTEGER NOT NULL, waiter_pid INTEGER,
    waiter_tid INTEGER
);

CREATE TABLE tcp_detail (
    event_id INTEGER PRIMARY KEY, local_address TEXT, local_port INTEGER, remote_address TEXT,
    remote_port INTEGER, state INTEGER, inode INTEGER, uid INTEGER, peer_pid INTEGER
);

CREATE TABLE xid_detail (
    event_id INTEGER PRIMARY KEY, device TEXT, message TEXT
);

CREATE TABLE collective (
    event_id INTEGER PRIMARY KEY, comm_hash INTEGER, seq INTEGER, rank INTEGER, nranks INTEGER,
    datatype INTEGER, reduce_op INTEGER, peer INTEGER
);

CREATE TABLE collective_round (
    comm_hash INTEGER NOT NULL, seq INTEGER NOT NULL, op_id INTEGER NOT NULL, nranks INTEGER NOT NULL,
    seen INTEGER NOT NULL, rank_sum INTEGER NOT NULL, last_ns INTEGER NOT NULL,
    PRIMARY KEY (comm_hash, seq, op_id)
) WITHOUT ROWID;

CREATE INDEX collective_round_last ON collective_round (last_ns);

CREATE TABLE operation_second (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, process_id INTEGER, pid INTEGER NOT NULL,
    op_id INTEGER NOT NULL, caller INTEGER NOT NULL, start_ns INTEGER NOT NULL, count INTEGER NOT NULL,
    exact INTEGER NOT NULL DEFAULT 1, count_error INTEGER NOT NULL DEFAULT 0, sum_ns INTEGER NOT NULL,
    min_ns INTEGER, max_ns INTEGER, p50_ns INTEGER, p95_ns INTEGER, p99_ns INTEGER, bytes INTEGER,
    errors INTEGER NOT NULL, recorded INTEGER NOT NULL, dropped INTEGER NOT NULL, slots BLOB NOT NULL,
    @BUCKETS@
);

CREATE INDEX operation_second_start ON operation_second (start_ns);

CREATE TABLE operation_minute (
    start_ns INTEGER NOT NULL, node_id INTEGER NOT NULL, process_id INTEGER NOT NULL,
    op_id INTEGER NOT NULL, caller INTEGER NOT NULL, pid INTEGER NOT NULL, count INTEGER NOT NULL,
    exact INTEGER NOT NULL, count_error INTEGER NOT NULL, sum_ns INTEGER NOT NULL, min_ns INTEGER,
    max_ns INTEGER, bytes INTEGER, errors INTEGER NOT NULL, slots BLOB NOT NULL,
    PRIMARY KEY (start_ns, node_id, process_id, op_id, caller)
) WITHOUT ROWID;

CREATE TABLE thread_second (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, process_id INTEGER, pid INTEGER NOT NULL,
    tid INTEGER NOT NULL, comm_id INTEGER, start_ns INTEGER NOT NULL, feeder INTEGER NOT NULL,
    throttled_ns INTEGER NOT NULL, late_ns INTEGER NOT NULL DEFAULT 0, gil_ns INTEGER,
    system_ns INTEGER NOT NULL DEFAULT 0, known INTEGER NOT NULL DEFAULT 0,
    voluntary_switches INTEGER NOT NULL, involuntary_switches INTEGER NOT NULL,
    major_faults INTEGER NOT NULL, minor_faults INTEGER NOT NULL,
    @BUCKETS@, @GAPS@, spun_ns INTEGER, reclaiming_ns INTEGER
);

CREATE INDEX thread_second_start ON thread_second (start_ns);

CREATE TABLE culprit (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, start_ns INTEGER NOT NULL,
    victim_pid INTEGER NOT NULL, victim_tid INTEGER NOT NULL, pid INTEGER, comm_id INTEGER,
    bucket INTEGER NOT NULL, throttled INTEGER NOT NULL, ns INTEGER NOT NULL, count INTEGER NOT NULL
);

CREATE INDEX culprit_start ON culprit (start_ns);

CREATE TABLE waker (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, start_ns INTEGER NOT NULL, pid INTEGER NOT NULL,
    tid INTEGER NOT NULL, waker_pid INTEGER, waker_tid INTEGER, kind INTEGER NOT NULL, comm_id INTEGER,
    bucket INTEGER NOT NULL, ns INTEGER NOT NULL, count INTEGER NOT NULL
);

CREATE INDEX waker_start ON waker (start_ns);

CREATE TABLE io_second (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, start_ns INTEGER NOT NULL, process_id INTEGER,
    pid INTEGER, comm_id INTEGER, op_id INTEGER NOT NULL, dev INTEGER NOT NULL, count INTEGER NOT NULL,
    bytes INTEGER NOT NULL, ns INTEGER NOT NULL, max_ns INTEGER
);

CREATE INDEX io_second_start ON io_second (start_ns);

CREATE TABLE system_sample (
    node_id INTEGER NOT NULL, at_ns INTEGER NOT NULL, cpu_share REAL, memory_share REAL,
    memory_available_bytes INTEGER, load1 REAL, cores INTEGER, swap_bytes INTEGER, psi_cpu_some REAL,
    psi_memory_some REAL, psi_io_some REAL, PRIMARY KEY (at_ns, node_id)
) WITHOUT ROWID;

CREATE TABLE gpu (
    node_id INTEGER NOT NULL, gpu_id INTEGER NOT NULL, uuid TEXT NOT NULL DEFAULT '', name TEXT NOT NULL,
    bus_id TEXT, driver TEXT, memory_bytes INTEGER, sm_clock_max_mhz INTEGER, memory_clock_max_mhz INTEGER,
    sm_clock_set_mhz INTEGER, sm_clock_default_mhz INTEGER, power_limit_default_mw INTEGER,
    slowdown_c INTEGER, pcie_gen_max INTEGER, pcie_width_max INTEGER, compute_mode TEXT, mig INTEGER,
    unsupported TEXT, first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
    PRIMARY KEY (node_id, gpu_id, uuid)
) WITHOUT ROWID;

CREATE TABLE gpu_sample (
    node_id INTEGER NOT NULL, at_ns INTEGER NOT NULL, gpu_id INTEGER NOT NULL, gpu_share REAL,
    memory_busy_share REAL, memory_used_bytes INTEGER, sm_clock_mhz INTEGER, memory_clock_mhz INTEGER,
    reasons INTEGER, power_mw INTEGER, power_limit_mw INTEGER, temperature_c INTEGER,
    memory_temperature_c INTEGER, pcie_gen INTEGER, pcie_width INTEGER, pcie_rx_bytes_per_s INTEGER,
    pcie_tx_bytes_per_s INTEGER, ecc_corrected INTEGER, ecc_uncorrected INTEGER, ecc_corrected_ever INTEGER,
    ecc_uncorrected_ever INTEGER, rows_remapped INTEGER, remap_pending INTEGER, remap_failed INTEGER,
    power_capped_ns INTEGER, heat_capped_ns INTEGER, lost INTEGER NOT NULL, asking_ns INTEGER,
    PRIMARY KEY (at_ns, node_id, gpu_id)
) WITHOUT ROWID;

CREATE TABLE gpu_process (
    node_id INTEGER NOT NULL, at_ns INTEGER NOT NULL, gpu_id INTEGER NOT NULL, pid INTEGER NOT NULL,
    process_id INTEGER, comm_id INTEGER, memory_bytes INTEGER, sm_share REAL, graphics INTEGER NOT NULL,
    PRIMARY KEY (at_ns, node_id, gpu_id, pid)
) WITHOUT ROWID;

CREATE TABLE in_flight (
    node_id INTEGER NOT NULL, tid INTEGER NOT NULL, since_ns INTEGER NOT NULL,
    op_id INTEGER NOT NULL DEFAULT 0, process_id INTEGER, pid INTEGER NOT NULL, comm_id INTEGER,
    bucket INTEGER NOT NULL, bucket_ns INTEGER NOT NULL, syscall INTEGER, before_attach INTEGER NOT NULL,
    first_seen_ns INTEGER NOT NULL, last_seen_ns INTEGER NOT NULL,
    PRIMARY KEY (node_id, tid, since_ns, op_id)
) WITHOUT ROWID;

CREATE TABLE loss (
    node_id INTEGER NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    reason_id INTEGER NOT NULL, count INTEGER NOT NULL
);

CREATE TABLE not_watched (
    node_id INTEGER NOT NULL, recording_id INTEGER NOT NULL, pid INTEGER NOT NULL, what TEXT NOT NULL,
    why TEXT NOT NULL, at_ns INTEGER NOT NULL, PRIMARY KEY (node_id, recording_id, pid, what, why)
) WITHOUT ROWID;

CREATE TABLE finding (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL,
    severity TEXT NOT NULL, title TEXT NOT NULL, first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL,
    confidence REAL, pid INTEGER, tid INTEGER, op TEXT, excess_ns INTEGER, wall_share REAL,
    explained_share REAL, source_file TEXT, source_line INTEGER, source_function TEXT, json TEXT NOT NULL,
    UNIQUE (node_id, key)
);

CREATE TABLE thread_sample (
    id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL, start_ns INTEGER NOT NULL, process_id INTEGER,
    pid INTEGER NOT NULL, tid INTEGER NOT NULL, stack_hash INTEGER, bucket INTEGER NOT NULL, op_id INTEGER,
    flags INTEGER NOT NULL, count INTEGER NOT NULL
);

CREATE INDEX thread_sample_start ON thread_sample (start_ns);

CREATE TABLE frame_text (
    id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE
);

CREATE TABLE frame (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, function_id INTEGER NOT NULL, file_id INTEGER NOT NULL,
    line INTEGER NOT NULL, module_id INTEGER NOT NULL, UNIQUE (function_id, file_id, line, module_id, kind)
);

CREATE TABLE stack (
    hash INTEGER PRIMARY KEY, frames TEXT NOT NULL, last_ns INTEGER NOT NULL
);

CREATE INDEX stack_last ON stack (last_ns)
"""

# What a job says of itself, each label from start_ns until its next value.
ANNOTATION = (
    "CREATE TABLE IF NOT EXISTS annotation (id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL,"
    " recording_id INTEGER NOT NULL, process_id INTEGER, pid INTEGER NOT NULL, key_id INTEGER NOT NULL,"
    " value TEXT NOT NULL, number INTEGER, start_ns INTEGER NOT NULL, end_ns INTEGER)",
    "CREATE INDEX IF NOT EXISTS annotation_start ON annotation (start_ns)",
    "CREATE INDEX IF NOT EXISTS annotation_open ON annotation (process_id, key_id) WHERE end_ns IS NULL",
)

# What tracing cost, what was watched less for it, and time that was put into its bucket by estimate.
GOVERNOR = (
    "CREATE TABLE IF NOT EXISTS overhead_second (node_id INTEGER NOT NULL, recording_id INTEGER NOT NULL,"
    " start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, share REAL NOT NULL, watched_share REAL NOT NULL,"
    " PRIMARY KEY (recording_id, start_ns)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS governor_action (node_id INTEGER NOT NULL, recording_id INTEGER NOT NULL,"
    " at_ns INTEGER NOT NULL, what TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL,"
    " why TEXT NOT NULL, watched_share REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS thread_estimate (node_id INTEGER NOT NULL, start_ns INTEGER NOT NULL,"
    " pid INTEGER NOT NULL, tid INTEGER NOT NULL, ns INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS thread_estimate_start ON thread_estimate (start_ns)",
)

# What context switches of threads that are not traced cost more.
SWITCHES = (
    "CREATE TABLE IF NOT EXISTS switch_second (node_id INTEGER NOT NULL, recording_id INTEGER NOT NULL,"
    " start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, switches INTEGER NOT NULL, ns INTEGER,"
    " PRIMARY KEY (recording_id, start_ns)) WITHOUT ROWID",
)
# Whose a process or container is, beyond what `container` says, and what became of pods.
TENANTS = (
    "CREATE TABLE IF NOT EXISTS container_label (node_id INTEGER NOT NULL, cgroup_id INTEGER NOT NULL,"
    " key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (cgroup_id, node_id, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS process_label (id INTEGER PRIMARY KEY, node_id INTEGER NOT NULL,"
    " process_id INTEGER, key TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (process_id, key))",
    "CREATE TABLE IF NOT EXISTS pod_event (node_id INTEGER NOT NULL, at_ns INTEGER NOT NULL,"
    " uid TEXT NOT NULL, pod TEXT NOT NULL, namespace TEXT NOT NULL, container TEXT NOT NULL,"
    " event TEXT NOT NULL, reason TEXT, exit_code INTEGER, restarts INTEGER,"
    " PRIMARY KEY (at_ns, node_id, uid, container, event)) WITHOUT ROWID",
)
# How far the clocks of nodes are apart, where somebody measured it: applied where nodes are compared.
CLOCKS = (
    "CREATE TABLE IF NOT EXISTS clock_offset (node_id INTEGER NOT NULL, from_ns INTEGER NOT NULL,"
    " offset_ns INTEGER NOT NULL, error_ns INTEGER, rate REAL NOT NULL DEFAULT 0, how TEXT NOT NULL,"
    " PRIMARY KEY (node_id, from_ns)) WITHOUT ROWID",
)
# Tables that databases of before lack and that can be read as empty: nothing else depends on them.
LATER = {
    "switch_second": ("node_id", "recording_id", "start_ns", "end_ns", "switches", "ns"),
    "container_label": ("node_id", "cgroup_id", "key", "value"),
    "process_label": ("id", "node_id", "process_id", "key", "value"),
    "pod_event": (
        "node_id", "at_ns", "uid", "pod", "namespace", "container", "event", "reason", "exit_code",
        "restarts",
    ),
    "clock_offset": ("node_id", "from_ns", "offset_ns", "error_ns", "rate", "how"),
}  # fmt: skip

TABLES = (
    tuple(
        part.strip().replace("@BUCKETS@", _BUCKETS).replace("@GAPS@", _GAPS) for part in _SCRIPT.split(";\n")
    )
    + ANNOTATION
    + GOVERNOR
    + SWITCHES
    + TENANTS
    + CLOCKS
)

BUCKET_ROWS = tuple(enumerate(BUCKET_NAMES))
