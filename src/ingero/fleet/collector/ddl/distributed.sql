-- In a cluster: one table over the shards for each of tables.sql. A node's rows always go to the same
-- shard, so copies of a batch meet there and one of them is kept.

CREATE TABLE IF NOT EXISTS $database.node_rounds $on_cluster AS $database.node_rounds$suffix
ENGINE = Distributed($cluster, $database, node_rounds$suffix, cityHash64(cluster, node));

CREATE TABLE IF NOT EXISTS $database.job_rounds $on_cluster AS $database.job_rounds$suffix
ENGINE = Distributed($cluster, $database, job_rounds$suffix, cityHash64(cluster, node));

CREATE TABLE IF NOT EXISTS $database.gpu_rounds $on_cluster AS $database.gpu_rounds$suffix
ENGINE = Distributed($cluster, $database, gpu_rounds$suffix, cityHash64(cluster, node));

CREATE TABLE IF NOT EXISTS $database.findings $on_cluster AS $database.findings$suffix
ENGINE = Distributed($cluster, $database, findings$suffix, cityHash64(cluster, node));

CREATE TABLE IF NOT EXISTS $database.stragglers $on_cluster AS $database.stragglers$suffix
ENGINE = Distributed($cluster, $database, stragglers$suffix, cityHash64(cluster, node));

CREATE TABLE IF NOT EXISTS $database.nodes $on_cluster AS $database.nodes$suffix
ENGINE = Distributed($cluster, $database, nodes$suffix, cityHash64(cluster, node));
