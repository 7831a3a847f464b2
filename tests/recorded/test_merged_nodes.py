"""Three nodes recorded by the Go implementation, merged: the sum of its parts, by SQL."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from ingero.serve.answers.graphs import get_graphs
from ingero.serve.answers.operations import Filters
from ingero.serve.answers.query import Range, ask_kernels, ask_statistics
from ingero.serve.cli.main import main
from ingero.store.reader import Reader
from tests.go_databases import ask
from tests.merging import differing_views

NODES = ("gpu-node-01", "gpu-node-02", "gpu-node-03")
STARVED = "pytorch-dataloader-starvation.db"
SUMS = (
    "SELECT SUM(count) FROM operations",
    "SELECT SUM(sum_ns) FROM operations",
    "SELECT SUM(ns) FROM thread_time",
    "SELECT SUM(duration) FROM events",
    "SELECT COUNT(*) FROM events",
    "SELECT SUM(count) FROM losses",
    "SELECT COUNT(*) FROM processes",
)


def sample(shared_dir: Path, node: str) -> Path:
    return shared_dir / "data" / f"sample-{node}.db"


@pytest.fixture(scope="module")
def cluster(shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cluster") / "cluster.db"
    files = [str(sample(shared_dir, node)) for node in NODES]
    before = [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files]
    assert main(["merge", *files, "-o", str(out)]) == 0
    assert [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files] == before
    return out


def number(path: Path, sql: str) -> int:
    return int(next(iter(ask(path, sql)[0].values())) or 0)


def test_every_view_is_the_sum_of_its_parts(cluster: Path, shared_dir: Path) -> None:
    assert differing_views(cluster, [sample(shared_dir, node) for node in NODES]) == []


@pytest.mark.parametrize("sql", SUMS)
def test_totals_add_up(cluster: Path, shared_dir: Path, sql: str) -> None:
    parts = [number(sample(shared_dir, node), sql) for node in NODES]
    assert number(cluster, sql) == sum(parts)
    assert sum(parts) > 0


def test_the_fleet_query_of_one_node_gives_what_its_own_file_gives(cluster: Path, shared_dir: Path) -> None:
    sql = "SELECT op, count(*), sum(duration) FROM events GROUP BY op ORDER BY op"
    for node in NODES:
        with Reader(cluster, node) as one, Reader(sample(shared_dir, node)) as own:
            assert one.rows(sql) == own.rows(sql)


def test_each_node_is_explained_as_by_itself(
    cluster: Path, shared_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def explained(*arguments: str) -> dict:
        capsys.readouterr()
        assert main(["explain", "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    together = explained("-d", str(cluster))
    assert together["node"] == ", ".join(NODES)
    found = []
    for node in NODES:
        alone = explained("-d", str(sample(shared_dir, node)))
        assert explained("-d", str(cluster), "--node", node) == alone
        found += alone["findings"]
        mine = [{**process, "node": None} for process in together["processes"] if process["node"] == node]
        assert mine == alone["processes"]
    key = json.dumps
    assert sorted(together["findings"], key=key) == sorted(found, key=key)
    assert found


def test_again_nothing_changes_and_a_nameless_file_needs_a_name(
    cluster: Path, shared_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "copy.db"
    out.write_bytes(cluster.read_bytes())
    files = [str(sample(shared_dir, node)) for node in NODES]
    assert main(["merge", *files, "-o", str(out)]) == 0
    assert out.read_bytes() == cluster.read_bytes()
    starved = shared_dir / "data" / STARVED
    assert main(["merge", str(starved), "-o", str(out)]) == 1
    assert "--force-node" in capsys.readouterr().err
    assert out.read_bytes() == cluster.read_bytes()
    assert main(["merge", *files, str(starved), "-o", str(out), "--force-node", "gpu-node-07"]) == 0
    with Reader(out) as reader:
        counts = reader.rows("SELECT node, count(*) FROM events GROUP BY node ORDER BY node")
    assert counts == [*((node, 200) for node in NODES), ("gpu-node-07", 3807)]
    assert main(["merge", str(starved), "-o", str(out), "--force-node", "gpu-node-07", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["changed"] is False
    assert {note["what"] for note in answer["clocks"]} == {"unknown"}


def test_statistics_of_the_cluster_are_those_of_each_node(cluster: Path, shared_dir: Path) -> None:
    def asked(path: Path) -> list[str]:
        operations = ask_statistics(path, Range(), Filters(), 10_000).operations
        kernels = ask_kernels(path, Range(), Filters(), 10_000).kernels
        graphs = get_graphs(path, Range())
        return sorted(map(repr, [*operations, *kernels, *graphs.processes, *graphs.launched, *graphs.events]))

    own = [row for node in NODES for row in asked(sample(shared_dir, node))]
    assert asked(cluster) == sorted(own)
    assert len({each.node for each in ask_statistics(cluster, Range(), Filters(), 10_000).operations}) == 3
