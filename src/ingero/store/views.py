"""The views scripts rely on: names, columns and their order are a contract.

Plain SQL only, so that they work in the sqlite3 shell too. Everything is joined
with LEFT JOIN on a primary key: SQLite then drops each join whose columns a query
does not use, and keeps `event` as the outer loop.
"""

from __future__ import annotations

from ingero.model.gpus import REASONS
from ingero.model.window import InFlightFlag
from ingero.store.schema import BUCKET_COLUMNS, SEQ_MASK

_ID = f"n.name || ':' || (e.id & {SEQ_MASK})"
# As model/finding.py spells it. A finding's key begins with the number of its recording.
_FINDING_ID = (
    f"COALESCE(n.name || ':' || e.kind || ':' || e.pid || ':' || (r.started_ns / 1000000000), {_ID})"
)
_CALLER = "CASE WHEN e.flags & 2 THEN 'runtime' WHEN e.flags & 4 THEN 'direct' END"
_DIRECTION = (
    "CASE e.direction WHEN 0 THEN 'HtoH' WHEN 1 THEN 'HtoD' WHEN 2 THEN 'DtoH' WHEN 3 THEN 'DtoD' END"
)
_DATATYPES = (
    "int8", "uint8", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2",
)  # fmt: skip
_REDUCE_OPS = ("sum", "prod", "max", "min", "avg")
_IRQ_CASES = "WHEN 2 THEN 'irq:timer' WHEN 3 THEN 'irq:block' WHEN 4 THEN 'irq:net' WHEN 5 THEN 'irq:other'"
# What is behind the number of a frame; 0 is no text and no line.
_FRAME_COLUMNS = "a.text AS function, c.text AS file, NULLIF(f.line, 0) AS line, m.text AS module"
_FRAME = """
        LEFT JOIN frame f ON f.id = j.value
        LEFT JOIN frame_text a ON a.id = f.function_id
        LEFT JOIN frame_text c ON c.id = f.file_id
        LEFT JOIN frame_text m ON m.id = f.module_id"""
# What follows the last slash: trimming everything that is no slash leaves the folder.
_BASE_NAME = "substr(file, length(rtrim(file, replace(file, '/', ''))) + 1)"


def _named(column: str, names: tuple[str, ...]) -> str:
    cases = " ".join(f"WHEN {number} THEN '{name}'" for number, name in enumerate(names))
    return f"CASE {column} {cases} END"


def _bucket_ns(table: str) -> str:
    cases = " ".join(f"WHEN {number} THEN {table}.{name}" for number, name in enumerate(BUCKET_COLUMNS))
    return f"CASE b.id {cases} END"


def _reason_text(column: str) -> str:
    """The names of the bits, with spaces between; NULL where the mask is, empty where no bit is set."""
    cases = " || ".join(f"IIF({column} & {bit}, ' {name}', '')" for bit, name, _ in REASONS)
    return f"CASE WHEN {column} IS NOT NULL THEN ltrim({cases}) END"


def _label(alias: str, table: str, key: str) -> str:
    """Joins one label of a process `p`, or of its container."""
    of = {
        "process_label": f"{alias}.process_id = p.id",
        "container_label": f"{alias}.cgroup_id = p.cgroup_id AND {alias}.node_id = p.node_id",
    }[table]
    return f"LEFT JOIN {table} {alias} ON {of} AND {alias}.key = '{key}'"


_CALL_COLUMNS = f"""
    {_ID} AS id, n.name AS node, e.ts_ns AS timestamp_ns, e.pid AS pid, e.tid AS tid, e.gpu_id AS gpu_id,
    o.layer AS layer, o.name AS op, {_CALLER} AS caller, k.name AS kernel_name,
    e.duration_ns AS duration_ns, e.bytes AS bytes, {_DIRECTION} AS direction, e.stream AS stream,
    e.ret AS ret, e.cgroup_id AS cgroup_id, e.stack_hash AS stack_hash, e.weight AS weight
    FROM event e
    LEFT JOIN node n ON n.id = e.node_id
    LEFT JOIN op o ON o.id = e.op_id
    LEFT JOIN kernel k ON k.id = e.kernel_id"""

VIEWS = {
    "events": f"""
        SELECT {_ID} AS id, n.name AS node, e.ts_ns AS timestamp, e.pid AS pid, e.tid AS tid, s.text AS comm,
            e.source AS source, o.name AS op, e.duration_ns AS duration, e.gpu_id AS gpu_id,
            COALESCE(e.bytes, e.arg0) AS arg0, e.arg1 AS arg1, e.ret AS ret_code,
            e.stack_hash AS stack_hash, e.cgroup_id AS cgroup_id, p.rank AS rank,
            p.local_rank AS local_rank, p.world_size AS world_size, e.weight AS weight
        FROM event e
        LEFT JOIN node n ON n.id = e.node_id
        LEFT JOIN op o ON o.id = e.op_id
        LEFT JOIN string s ON s.id = e.comm_id
        LEFT JOIN process p ON p.id = e.process_id""",
    "cuda_events": f"""
        SELECT {_CALL_COLUMNS}
        WHERE e.source IN (1, 4, 8)""",
    "calls": f"""
        SELECT {_CALL_COLUMNS}
        WHERE e.source IN (1, 4, 8, 9) AND e.flags & 1 = 0""",
    "nccl_events": f"""
        SELECT {_ID} AS id, n.name AS node, e.ts_ns AS timestamp_ns, e.pid AS pid, e.tid AS tid, o.name AS op,
            CASE WHEN c.comm_hash IS NOT NULL THEN printf('%016x', c.comm_hash) END AS comm_hash,
            c.seq AS seq, c.rank AS rank, c.nranks AS nranks, e.bytes AS bytes,
            {_named("c.datatype", _DATATYPES)} AS datatype, {_named("c.reduce_op", _REDUCE_OPS)} AS reduce_op,
            c.peer AS peer, e.duration_ns AS duration_ns,
            -- ranks 0 to n-1, each once: only then is the last arrival known
            CASE WHEN r.seen = r.nranks AND r.rank_sum = r.nranks * (r.nranks - 1) / 2 AND c.peer IS NULL
                THEN r.last_ns - e.ts_ns END AS wait_ns,
            e.cgroup_id AS cgroup_id, e.weight AS weight
        FROM collective c
        CROSS JOIN event e ON e.id = c.event_id
        LEFT JOIN node n ON n.id = e.node_id
        LEFT JOIN op o ON o.id = e.op_id
        LEFT JOIN collective_round r ON r.comm_hash = c.comm_hash AND r.seq = c.seq AND r.op_id = e.op_id""",
    "containers": """
        SELECT c.cgroup_id AS cgroup_id, n.name AS node, c.container_id AS container_id, c.runtime AS runtime,
            c.pod AS pod, c.namespace AS namespace, c.job AS job
        FROM container c
        LEFT JOIN node n ON n.id = c.node_id""",
    "operations": """
        SELECT n.name AS node, t.pid AS pid, o.layer AS layer, o.name AS op,
            CASE t.caller WHEN 1 THEN 'runtime' WHEN 2 THEN 'direct' END AS caller,
            t.start_ns AS bucket_start_ns, t.count AS count, t.exact AS exact, t.count_error AS count_error,
            t.sum_ns AS sum_ns, t.min_ns AS min_ns, t.max_ns AS max_ns, t.p50_ns AS p50_ns,
            t.p95_ns AS p95_ns, t.p99_ns AS p99_ns, t.bytes AS bytes
        FROM operation_second t
        LEFT JOIN node n ON n.id = t.node_id
        LEFT JOIN op o ON o.id = t.op_id""",
    "thread_time": f"""
        SELECT n.name AS node, t.pid AS pid, t.tid AS tid, s.text AS comm, t.start_ns AS bucket_start_ns,
            b.name AS bucket, {_bucket_ns("t")} AS ns
        FROM thread_second t
        CROSS JOIN bucket b
        LEFT JOIN node n ON n.id = t.node_id
        LEFT JOIN string s ON s.id = t.comm_id
        WHERE {_bucket_ns("t")} > 0""",
    "call_time": f"""
        SELECT {_ID} AS id, b.name AS bucket, {_bucket_ns("e")} AS ns
        FROM event e
        CROSS JOIN bucket b
        LEFT JOIN node n ON n.id = e.node_id
        WHERE e.source IN (1, 4, 8, 9) AND {_bucket_ns("e")} > 0""",
    "culprits": """
        SELECT n.name AS node, c.victim_pid AS victim_pid, c.victim_tid AS victim_tid, c.pid AS pid,
            s.text AS comm, b.name AS bucket, c.start_ns AS bucket_start_ns, c.ns AS ns, c.count AS count
        FROM culprit c
        LEFT JOIN node n ON n.id = c.node_id
        LEFT JOIN string s ON s.id = c.comm_id
        LEFT JOIN bucket b ON b.id = c.bucket""",
    "wakers": f"""
        SELECT n.name AS node, w.pid AS pid, w.tid AS tid, w.waker_pid AS waker_pid, w.waker_tid AS waker_tid,
            CASE w.kind {_IRQ_CASES} ELSE s.text END AS waker, w.start_ns AS bucket_start_ns, w.ns AS ns,
            w.count AS count
        FROM waker w
        LEFT JOIN node n ON n.id = w.node_id
        LEFT JOIN string s ON s.id = w.comm_id""",
    "findings": f"""
        SELECT {_FINDING_ID} AS id, n.name AS node, e.kind AS kind, e.severity AS severity, e.title AS title,
            e.first_ns AS first_ns, e.last_ns AS last_ns, e.confidence AS confidence, e.pid AS pid,
            e.tid AS tid, e.op AS op, e.excess_ns AS excess_ns, e.wall_share AS wall_share,
            e.explained_share AS explained_share, e.source_file AS source_file,
            e.source_line AS source_line, e.source_function AS source_function, e.json AS json
        FROM finding e
        LEFT JOIN node n ON n.id = e.node_id
        LEFT JOIN recording r
            ON r.id = CAST(substr(e.key, 1, instr(e.key, ':') - 1) AS INTEGER) AND r.node_id = e.node_id""",
    "unfinished_calls": f"""
        SELECT n.name AS node, f.since_ns AS timestamp_ns, f.pid AS pid, f.tid AS tid, s.text AS comm,
            o.layer AS layer, o.name AS op, f.last_seen_ns - f.since_ns AS duration_ns,
            b.name AS bucket,
            (f.before_attach & {int(InFlightFlag.CALL_BEFORE)}) = 0 AS entered,
            (f.before_attach & {int(InFlightFlag.DIED)}) > 0 AS died
        FROM in_flight f
        JOIN op o ON o.id = f.op_id
        LEFT JOIN node n ON n.id = f.node_id
        LEFT JOIN string s ON s.id = f.comm_id
        LEFT JOIN bucket b ON b.id = f.bucket""",
    "losses": """
        SELECT n.name AS node, l.start_ns AS start_ns, l.end_ns AS end_ns, s.text AS reason, l.count AS count
        FROM loss l
        LEFT JOIN node n ON n.id = l.node_id
        LEFT JOIN string s ON s.id = l.reason_id""",
    "processes": """
        SELECT n.name AS node, p.pid AS pid, p.start_ns AS start_ns, p.end_ns AS end_ns, p.comm AS comm,
            p.cmdline AS cmdline, p.cgroup_id AS cgroup_id, p.rank AS rank, p.local_rank AS local_rank,
            p.world_size AS world_size, p.uid AS uid
        FROM process p
        LEFT JOIN node n ON n.id = p.node_id
        WHERE p.target""",
    "bystanders": """
        SELECT n.name AS node, p.pid AS pid, p.start_ns AS start_ns, p.comm AS comm, p.cmdline AS cmdline,
            p.cgroup_id AS cgroup_id, p.parent_pid AS parent_pid, p.uid AS uid
        FROM process p
        LEFT JOIN node n ON n.id = p.node_id
        WHERE NOT p.target""",
    "annotations": """
        SELECT n.name AS node, a.pid AS pid, s.text AS key, a.value AS value, a.number AS number,
            a.start_ns AS start_ns,
            COALESCE(a.end_ns, MAX(a.start_ns, MIN(COALESCE(p.end_ns, r.last_ns), r.last_ns))) AS end_ns
        FROM annotation a
        LEFT JOIN node n ON n.id = a.node_id
        LEFT JOIN string s ON s.id = a.key_id
        LEFT JOIN process p ON p.id = a.process_id
        LEFT JOIN recording r ON r.id = a.recording_id""",
    "gpus": """
        SELECT n.name AS node, g.gpu_id AS gpu_id, NULLIF(g.uuid, '') AS uuid, g.name AS name,
            g.bus_id AS bus_id, g.driver AS driver, g.memory_bytes AS memory_bytes,
            g.sm_clock_max_mhz AS sm_clock_max_mhz, g.memory_clock_max_mhz AS memory_clock_max_mhz,
            g.sm_clock_set_mhz AS sm_clock_set_mhz, g.sm_clock_default_mhz AS sm_clock_default_mhz,
            g.power_limit_default_mw AS power_limit_default_mw, g.slowdown_c AS slowdown_c,
            g.pcie_gen_max AS pcie_gen_max, g.pcie_width_max AS pcie_width_max,
            g.compute_mode AS compute_mode, g.mig AS mig, g.unsupported AS unsupported,
            g.first_ns AS first_ns, g.last_ns AS last_ns
        FROM gpu g
        LEFT JOIN node n ON n.id = g.node_id""",
    "gpu_samples": f"""
        SELECT n.name AS node, t.gpu_id AS gpu_id, t.at_ns AS timestamp_ns, t.gpu_share AS gpu_share,
            t.memory_busy_share AS memory_busy_share, t.memory_used_bytes AS memory_used_bytes,
            t.sm_clock_mhz AS sm_clock_mhz, t.memory_clock_mhz AS memory_clock_mhz,
            t.reasons AS reasons, {_reason_text("t.reasons")} AS reason_names, t.power_mw AS power_mw,
            t.power_limit_mw AS power_limit_mw, t.temperature_c AS temperature_c,
            t.memory_temperature_c AS memory_temperature_c, t.pcie_gen AS pcie_gen,
            t.pcie_width AS pcie_width, t.pcie_rx_bytes_per_s AS pcie_rx_bytes_per_s,
            t.pcie_tx_bytes_per_s AS pcie_tx_bytes_per_s, t.ecc_corrected AS ecc_corrected,
            t.ecc_uncorrected AS ecc_uncorrected, t.ecc_corrected_ever AS ecc_corrected_ever,
            t.ecc_uncorrected_ever AS ecc_uncorrected_ever, t.rows_remapped AS rows_remapped,
            t.remap_pending AS remap_pending, t.remap_failed AS remap_failed,
            t.power_capped_ns AS power_capped_ns, t.heat_capped_ns AS heat_capped_ns, t.lost AS lost,
            t.asking_ns AS asking_ns
        FROM gpu_sample t
        LEFT JOIN node n ON n.id = t.node_id""",
    "gpu_processes": """
        SELECT n.name AS node, t.gpu_id AS gpu_id, t.at_ns AS timestamp_ns, t.pid AS pid, s.text AS comm,
            t.memory_bytes AS memory_bytes, t.sm_share AS sm_share, t.graphics AS graphics
        FROM gpu_process t
        LEFT JOIN node n ON n.id = t.node_id
        LEFT JOIN string s ON s.id = t.comm_id""",
    "samples": """
        SELECT n.name AS node, t.pid AS pid, t.tid AS tid, t.start_ns AS bucket_start_ns,
            t.stack_hash AS stack_hash, b.name AS bucket, o.name AS op, t.flags & 1 AS collecting,
            (t.flags >> 1) & 1 AS gil, (t.flags >> 2) & 1 AS kernel, t.count AS count
        FROM thread_sample t
        LEFT JOIN node n ON n.id = t.node_id
        LEFT JOIN bucket b ON b.id = t.bucket
        LEFT JOIN op o ON o.id = t.op_id""",
    "stacks": f"""
        SELECT k.hash AS stack_hash, j.key AS depth, f.kind AS kind, {_FRAME_COLUMNS}
        FROM stack k
        CROSS JOIN json_each(k.frames) j{_FRAME}""",
    "stack_text": f"""
        SELECT k.hash AS stack_hash, (
            SELECT GROUP_CONCAT(CASE WHEN kind = 'python'
                THEN COALESCE(function, '?') || '()' || COALESCE(' at ' || {_BASE_NAME}, '')
                    || COALESCE(':' || line, '')
                ELSE COALESCE(function, '?') || COALESCE(' in ' || module, '') END, ' < ')
            FROM (
                SELECT f.kind AS kind, {_FRAME_COLUMNS}
                FROM json_each(k.frames) j{_FRAME}
                ORDER BY j.key)
            ) AS text
        FROM stack k""",
    "overhead": """
        SELECT n.name AS node, v.start_ns AS bucket_start_ns, v.share AS share,
            v.watched_share AS watched_share
        FROM overhead_second v
        LEFT JOIN node n ON n.id = v.node_id""",
    "own_cost": """
        SELECT n.name AS node, w.start_ns AS bucket_start_ns, w.agent_cpu_ns AS agent_cpu_ns,
            t.switches AS switches, t.ns AS switches_ns
        FROM window w
        LEFT JOIN switch_second t ON t.recording_id = w.recording_id AND t.start_ns = w.start_ns
        LEFT JOIN node n ON n.id = w.node_id""",
    "clock_offsets": """
        SELECT n.name AS node, k.from_ns AS from_ns, k.offset_ns AS offset_ns, k.error_ns AS error_ns,
            k.rate AS rate, k.how AS how
        FROM clock_offset k
        LEFT JOIN node n ON n.id = k.node_id""",
    "governor_actions": """
        SELECT n.name AS node, g.at_ns AS at_ns, g.what AS what, g.before AS before, g.after AS after,
            g.why AS why, g.watched_share AS watched_share
        FROM governor_action g
        LEFT JOIN node n ON n.id = g.node_id""",
    "thread_estimates": """
        SELECT n.name AS node, t.pid AS pid, t.tid AS tid, t.start_ns AS bucket_start_ns, t.ns AS ns
        FROM thread_estimate t
        LEFT JOIN node n ON n.id = t.node_id""",
    "tenants": f"""
        SELECT n.name AS node, p.pid AS pid, p.start_ns AS start_ns, p.end_ns AS end_ns, p.comm AS comm,
            p.target AS target, c.container_id AS container_id, c.runtime AS runtime, w.value AS container,
            c.pod AS pod, c.namespace AS namespace, o.value AS owner, COALESCE(j.value, c.job) AS job,
            u.value AS user, a.value AS account, p.uid AS uid, p.cgroup_id AS cgroup_id
        FROM process p
        LEFT JOIN node n ON n.id = p.node_id
        LEFT JOIN container c ON c.cgroup_id = p.cgroup_id AND c.node_id = p.node_id
        {_label("w", "container_label", "name")}
        {_label("o", "container_label", "owner")}
        {_label("j", "process_label", "job")}
        {_label("u", "process_label", "user")}
        {_label("a", "process_label", "account")}""",
    "container_labels": """
        SELECT n.name AS node, t.cgroup_id AS cgroup_id, t.key AS key, t.value AS value
        FROM container_label t
        LEFT JOIN node n ON n.id = t.node_id""",
    "process_labels": """
        SELECT n.name AS node, p.pid AS pid, p.start_ns AS start_ns, t.key AS key, t.value AS value
        FROM process_label t
        LEFT JOIN process p ON p.id = t.process_id
        LEFT JOIN node n ON n.id = t.node_id""",
    "pod_events": """
        SELECT n.name AS node, t.at_ns AS timestamp_ns, t.namespace AS namespace, t.pod AS pod,
            NULLIF(t.container, '') AS container, t.event AS event, t.reason AS reason,
            t.exit_code AS exit_code, t.restarts AS restarts
        FROM pod_event t
        LEFT JOIN node n ON n.id = t.node_id""",
}


# Views of tables that recordings of before have too: a reader makes its own where the file has none.
TENANT_VIEWS = ("tenants", "container_labels", "process_labels", "pod_events")
LATER_VIEWS = frozenset({"clock_offsets", "own_cost", "unfinished_calls", *TENANT_VIEWS})


def create_views() -> list[str]:
    return [f"CREATE VIEW {name} AS {select}" for name, select in VIEWS.items()]
