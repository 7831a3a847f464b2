-- Everything the collector keeps. $database, $on_cluster, $suffix, $replacing, $aggregating and $days are
-- filled in by tables.py: on one machine the suffix is empty; in a cluster these are the replicated tables of
-- each shard, and distributed.sql puts one table over them.
--
-- A batch may arrive twice: an answer was cut off, a collector was killed. Its rows then have the same
-- key, and ReplacingMergeTree keeps one of them; queries read with FINAL or are indifferent to copies.
-- The hour stands first in the key: what is asked most is the last minute of everybody.

CREATE DATABASE IF NOT EXISTS $database $on_cluster;

CREATE TABLE IF NOT EXISTS $database.node_rounds$suffix $on_cluster
(
    cluster LowCardinality(String),
    node LowCardinality(String),
    at DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    run FixedString(16) CODEC(ZSTD(1)),
    number UInt64 CODEC(DoubleDelta, ZSTD(1)),
    received DateTime64(3, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    version LowCardinality(String),
    cores_share Nullable(Float32),
    memory_share Nullable(Float32),
    targets Nullable(UInt32),
    lost_events Nullable(UInt64),
    overhead_share Nullable(Float32),
    agent_cpu_s Nullable(Float32),
    dropped_rounds UInt64
)
ENGINE = $replacing
PARTITION BY toDate(at)
ORDER BY (toStartOfHour(at), cluster, node, run, number)
TTL toDateTime(at) + INTERVAL $days DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS $database.job_rounds$suffix $on_cluster
(
    cluster LowCardinality(String),
    node LowCardinality(String),
    at DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    run FixedString(16) CODEC(ZSTD(1)),
    number UInt64 CODEC(DoubleDelta, ZSTD(1)),
    pid UInt32,
    name LowCardinality(String),
    command LowCardinality(String),
    job LowCardinality(String),
    rank Nullable(UInt32),
    world_size Nullable(UInt32),
    container LowCardinality(String),
    pod LowCardinality(String),
    namespace LowCardinality(String),
    bound_by LowCardinality(String),
    steps_per_s Nullable(Float32),
    usual_steps_per_s Nullable(Float32),
    gpu_busy_share Nullable(Float32),
    time_s Map(LowCardinality(String), Float32)
)
ENGINE = $replacing
PARTITION BY toDate(at)
ORDER BY (toStartOfHour(at), cluster, node, pid, run, number)
TTL toDateTime(at) + INTERVAL $days DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

CREATE TABLE IF NOT EXISTS $database.gpu_rounds$suffix $on_cluster
(
    cluster LowCardinality(String),
    node LowCardinality(String),
    at DateTime64(9, 'UTC') CODEC(DoubleDelta, ZSTD(1)),
    run FixedString(16) CODEC(ZSTD(1)),
    number UInt64 CODEC(DoubleDelta, ZSTD(1)),
    gpu UInt16,
    model LowCardinality(String),
    uuid LowCardinality(String),
    busy_share Nullable(Float32),
    memory_used_bytes Nullable(UInt64),
    memory_bytes Nullable(UInt64),
    sm_clock_hz Nullable(Float32),
    power_w Nullable(Float32),
    temperature_c Nullable(Float32),
    throttled_s Nullable(Float32)
)
ENGINE = $replacing
PARTITION BY toDate(at)
ORDER BY (toStartOfHour(at), cluster, node, gpu, run, number)
TTL toDateTime(at) + INTERVAL $days DAY DELETE
SETTINGS ttl_only_drop_parts = 1;

-- The last word about a finding wins, whenever it comes.
CREATE TABLE IF NOT EXISTS $database.findings$suffix $on_cluster
(
    cluster LowCardinality(String),
    node LowCardinality(String),
    id String,
    opened DateTime64(9, 'UTC'),
    told DateTime64(9, 'UTC'),
    kind LowCardinality(String),
    severity LowCardinality(String),
    title String,
    first DateTime64(9, 'UTC'),
    last DateTime64(9, 'UTC'),
    ended Bool,
    confidence Float32,
    pid Nullable(UInt32),
    lost_share Nullable(Float32),
    cause String,
    fix String
)
ENGINE = $replacing_told
ORDER BY (cluster, node, id, opened)
TTL toDateTime(told) + INTERVAL $days_of_findings DAY DELETE;

-- Who straggles since when: kept so that a collector that starts again goes on where it was. `since` is no
-- part of the key: collectors beside each other see a beginning at different moments, and whoever says that
-- it ended means all of them.
CREATE TABLE IF NOT EXISTS $database.stragglers$suffix $on_cluster
(
    cluster LowCardinality(String),
    node LowCardinality(String),
    key String,
    since DateTime64(9, 'UTC'),
    told DateTime64(9, 'UTC'),
    ended Bool,
    json String
)
ENGINE = $replacing_told
ORDER BY (cluster, node, key)
TTL toDateTime(told) + INTERVAL $days_of_findings DAY DELETE;

-- Every node that ever spoke; made from the rounds, so it needs no insert of its own.
CREATE TABLE IF NOT EXISTS $database.nodes$suffix $on_cluster
(
    cluster LowCardinality(String),
    node LowCardinality(String),
    first_at SimpleAggregateFunction(min, DateTime64(9, 'UTC')),
    last_at SimpleAggregateFunction(max, DateTime64(9, 'UTC')),
    last_received SimpleAggregateFunction(max, DateTime64(3, 'UTC'))
)
ENGINE = $aggregating
ORDER BY (cluster, node)
TTL toDateTime(last_received) + INTERVAL $days DAY DELETE;

CREATE MATERIALIZED VIEW IF NOT EXISTS $database.nodes_from_rounds$suffix $on_cluster
TO $database.nodes$suffix AS
SELECT cluster, node, min(at) AS first_at, max(at) AS last_at, max(received) AS last_received
FROM $database.node_rounds$suffix
GROUP BY cluster, node;
