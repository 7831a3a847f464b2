"""Nodes that are asked over the network are looked at together."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from tests.fanout.conftest import MS, Ask
from tests.fleet_nodes import Authority, dashboard
from tests.met_nodes import record_rank

AHEAD_MS = (0, 80, -33)


def test_the_late_rank_is_found_though_every_clock_is_another(
    authority: Authority, ask: Ask, tmp_path: Path
) -> None:
    signed = str(authority.sign("across"))
    words = ("--addr", "127.0.0.1:0", "--cert", signed, "--key", signed)
    with ExitStack() as servers:
        nodes = [
            servers.enter_context(
                dashboard(
                    record_rank(tmp_path / f"{rank}.db", f"gpu-node-{rank}", rank, 3, 1, ahead_ms),
                    tmp_path / f"home-{rank}",
                    *words,
                    ahead_ns=ahead_ms * MS,
                )
            )
            for rank, ahead_ms in enumerate(AHEAD_MS)
        ]
        said = ask("explain", "--json", "--nodes", ",".join(nodes))
    titles = [each["title"] for each in said.json["findings"] if each["kind"] == "nccl-straggler"]
    assert len(titles) == 1
    assert titles[0].startswith("Rank 1 on gpu-node-1 arrives 41 ms late in every step; there log-shipper")
