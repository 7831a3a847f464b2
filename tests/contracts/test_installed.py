"""The tests run what the tree says: the installed package is the tree's own."""

from __future__ import annotations

from pathlib import Path

import ingero
from ingero.native import _shim
from tests.contracts.tree import SOURCE, under

INSTALLED = Path(ingero.__file__).parent


def test_the_installed_modules_are_those_of_the_tree() -> None:
    sources = {path.relative_to(SOURCE / "ingero"): path for path in under("src", ".py")}
    stale = [
        str(inner)
        for inner, path in sources.items()
        if not (INSTALLED / inner).exists() or (INSTALLED / inner).read_bytes() != path.read_bytes()
    ]
    assert not stale, f"run `make build`: {stale}"


def test_nothing_is_installed_that_the_tree_no_longer_has() -> None:
    left = [
        str(path.relative_to(INSTALLED))
        for path in INSTALLED.rglob("*.py")
        if not (SOURCE / "ingero" / path.relative_to(INSTALLED)).exists()
    ]
    assert not left


def test_the_native_module_and_the_probes_are_there() -> None:
    assert _shim.libbpf_version()
    probes = {path.name.removesuffix(".bpf.c") for path in under("probes") if path.name.endswith(".bpf.c")}
    built = {path.name for path in (INSTALLED / "native/bpf").iterdir()}
    wanted = {f"{name}.{machine}.bpf.o" for name in probes for machine in ("x86_64", "aarch64")}
    assert wanted == built
