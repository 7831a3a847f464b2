"""What is in the wheel, whoever installs it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from tests.contracts.tree import under

PAGES = {"index.html", "login.html", "fleet.html", "app.js", "login.js", "fleet.js", "report.js", "style.css"}
LARGEST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_one_wheel_is_for_every_python_and_for_glibc_2_34(wheel: Path) -> None:
    assert re.fullmatch(r"ingero-[\d.]+-cp311-abi3-manylinux_2_34_(x86_64|aarch64)\.whl", wheel.name)


def test_the_probes_for_both_processors_are_inside(names: set[str]) -> None:
    probes = {path.name.removesuffix(".bpf.c") for path in under("probes") if path.name.endswith(".bpf.c")}
    wanted = {
        f"ingero/native/bpf/{name}.{machine}.bpf.o" for name in probes for machine in ("x86_64", "aarch64")
    }
    assert wanted <= names


def test_the_pages_of_the_dashboard_are_inside(names: set[str]) -> None:
    assert {f"ingero/serve/dashboard/static/{page}" for page in PAGES} <= names


def test_the_libraries_it_links_to_are_inside(names: set[str]) -> None:
    libraries = {re.sub(r"[-.].*", "", Path(name).name) for name in names if name.startswith("ingero.libs/")}
    assert {"libbpf", "libelf"} <= libraries


def test_no_source_of_the_native_module_is_inside_and_it_stays_small(wheel: Path, names: set[str]) -> None:
    assert not [name for name in names if name.endswith((".c", ".h")) or "__pycache__" in name]
    assert wheel.stat().st_size < LARGEST_BYTES
