"""Kernel side GPL-2.0 or BSD-3-Clause, everything else Apache-2.0."""

from __future__ import annotations

import re
import tomllib

from tests.contracts.tree import ROOT, files, name, under

PROBE_LINE = "SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause"
TAG = "SPDX-License-" + "Identifier:"


def test_every_probe_source_says_its_licence_in_the_first_line() -> None:
    sources = under("probes", ".c", ".h")
    assert sources
    silent = [name(path) for path in sources if PROBE_LINE not in path.read_text().splitlines()[0]]
    assert not silent


def test_every_loaded_object_tells_the_kernel_the_same_licence() -> None:
    for path in under("probes", ".c"):
        programs = re.findall(r'^SEC\("(?!license|\.maps)', path.read_text(), re.M)
        if programs:
            assert 'LICENSE[] SEC("license") = "Dual BSD/GPL"' in path.read_text(), name(path)


def test_user_space_is_apache_and_says_so_in_one_place() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert "END OF TERMS AND CONDITIONS" in (ROOT / "LICENSE").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0 AND (GPL-2.0-only OR BSD-3-Clause)"
    others = [
        name(path)
        for path in files()
        if path.suffix in (".py", ".c", ".h", ".sh") and ROOT / "probes" not in path.parents
        for line in path.read_text(encoding="utf-8").splitlines()[:5]
        if TAG in line and "Apache-2.0" not in line
    ]
    assert not others


def test_the_texts_of_the_licences_are_in_the_tree() -> None:
    assert "GNU GENERAL PUBLIC LICENSE" in (ROOT / "LICENSES/GPL-2.0.txt").read_text()
    assert "Neither the name of the copyright holder" in (ROOT / "LICENSES/BSD-3-Clause.txt").read_text()
