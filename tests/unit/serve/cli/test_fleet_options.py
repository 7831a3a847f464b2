"""What a node shows its collector is its own, and nothing else goes there."""

from __future__ import annotations

import pytest

from ingero.config import parse
from ingero.serve.cli.fleet_options import collector


def test_a_collector_gets_the_nodes_token_and_not_the_one_for_other_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = parse(b"", "ingero.yaml")
    monkeypatch.delenv("INGERO_NODE_TOKEN", raising=False)
    monkeypatch.setenv("INGERO_FLEET_TOKEN", "for-other-nodes")
    assert collector("https://c:8443", "--fleet", config).headers == {}
    monkeypatch.setenv("INGERO_NODE_TOKEN", "ingero-node:n1:00")
    shown = collector("https://c:8443", "--fleet", config).headers
    assert shown == {"authorization": "Bearer ingero-node:n1:00"}
