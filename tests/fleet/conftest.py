"""A store, started once: the engine takes a second and some hundred megabytes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingero.fleet.collector.store import Address, Store
from tests.conftest import require


def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = [name for name in ("chdb", "clickhouse_connect") if importlib.util.find_spec(name) is None]
    require("fleet", [f"no {name}: pip install 'ingero[fleet]'" for name in missing])


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One folder for the whole process: the embedded engine has no second one."""
    made = Store(Address(tmp_path_factory.mktemp("store") / "db"))
    yield made
    made.close()


@pytest.fixture
def store(engine: Store) -> Store:
    """The same, empty."""
    for table in ("node_rounds", "job_rounds", "gpu_rounds", "findings", "stragglers", "nodes"):
        engine._command(f"TRUNCATE TABLE {engine.address.database}.{table}")
    return engine


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    return made
