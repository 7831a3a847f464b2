"""Three nodes that work, for every test that only asks; an authority that signed their certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ingero.serve.cli.main import main
from tests.fleet_nodes import Authority, dashboard, record
from tests.servers import TOKEN

MS = 1_000_000
AHEAD_NS = 80 * MS  # the clock of the second node


@dataclass(frozen=True)
class Cluster:
    """gpu-node-01 to gpu-node-03."""

    authority: Authority
    nodes: tuple[str, ...]
    databases: tuple[Path, ...]

    @property
    def listed(self) -> str:
        return ",".join(self.nodes)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def cluster(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    durations = ((1000, 2000, 3000), (9000,), (4000, 4000))
    with ExitStack() as stack:
        nodes, databases = [], []
        for number, took in enumerate(durations, 1):
            db = record(folder / f"{number}.db", f"gpu-node-0{number}", took)
            signed = authority.sign(f"node-{number}", (f"127.0.0.{number + 1}",))
            words = ("--addr", f"127.0.0.{number + 1}:0", "--cert", str(signed), "--key", str(signed))
            ahead_ns = AHEAD_NS if number == 2 else 0
            nodes.append(
                stack.enter_context(dashboard(db, folder / f"home-{number}", *words, ahead_ns=ahead_ns))
            )
            databases.append(db)
        yield Cluster(authority, tuple(nodes), tuple(databases))


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


Ask = Callable[..., Said]


@pytest.fixture
def ask(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> Ask:
    """The command line, with the authority and the token of the tests."""
    for name in ("INGERO_DB", "INGERO_FLEET_NODES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("INGERO_TOKEN", TOKEN)
    monkeypatch.setenv("INGERO_FLEET_CA_CERT", str(authority.file))
    monkeypatch.chdir(tmp_path)

    def asked(*words: str) -> Said:
        code = main(list(words))
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return asked
