"""What an assistant gets of many nodes."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from ingero.config import Config
from ingero.errors import UsageError
from ingero.fleet.asking import Limits, Trust
from ingero.fleet.nodes import parse_nodes
from ingero.serve.answers.asked_nodes import Fleet
from ingero.serve.mcp.source import AssistantSource
from ingero.serve.mcp.tools import Tools
from tests.fanout.conftest import Cluster
from tests.servers import TOKEN


@pytest.fixture
def tools(cluster: Cluster) -> Tools:
    """The cluster, and a node that is down."""
    trust = Trust(ssl.create_default_context(cafile=cluster.authority.file), TOKEN)
    fleet = Fleet(parse_nodes([cluster.listed, "127.0.0.1:1"]), trust, Limits(seconds=20))
    return Tools(AssistantSource(None, Config(), lambda: fleet))


def missing(answer: dict[str, Any]) -> list[str]:
    return [each["problem"] for each in answer["not_answered"]]


def test_the_overview_has_every_node_with_its_clock(tools: Tools) -> None:
    answer = tools.query_fleet()
    assert answer["answer"] == "3 of 4 nodes answer"
    assert [each["node"] for each in answer["nodes"]] == [f"«gpu-node-0{number}»" for number in (1, 2, 3)]
    assert all(each["events"] > 0 and "±" in each["clock"] for each in answer["nodes"])
    assert missing(answer) == ["down"]
    assert any("the clock of gpu-node-02 is" in each for each in answer["warnings"])


def test_chains_say_on_which_node_they_are(tools: Tools) -> None:
    answer = tools.query_fleet("chains", since="5m")
    assert answer["answer"].endswith("from 3 nodes")
    assert answer["chains"]
    assert all("gpu-node-0" in str(each) for each in answer["chains"])
    assert list(answer)[:3] == ["answer", "warnings", "not_answered"]


def test_operations_and_rows_come_with_their_node(tools: Tools) -> None:
    operations = tools.query_fleet("ops")["operations"]
    assert {each["node"] for each in operations} == {f"«gpu-node-0{number}»" for number in (1, 2, 3)}
    answer = tools.query_fleet("sql", query="SELECT count(*) AS n FROM calls")
    assert answer["columns"] == ["node", "n"]
    assert [row[1] for row in answer["rows"]] == [9, 3, 6]
    assert missing(answer) == ["down"]


def test_sql_without_a_query_is_a_mistake(tools: Tools) -> None:
    with pytest.raises(UsageError):
        tools.query_fleet("sql")


def test_without_nodes_there_is_no_fleet() -> None:
    answer = Tools(AssistantSource(None, Config())).query_fleet("chains")
    assert "no nodes are configured" in answer["answer"]
