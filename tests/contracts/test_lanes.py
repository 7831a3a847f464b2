"""Every folder of tests is run by make test, or is known to be run elsewhere; no test is skipped unseen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import containers
from tests.contracts.tree import under

ROOT = Path(__file__).parents[2]
# Run by `make unit`, by `make test-traced`, and by targets of their own on other machines.
ELSEWHERE = {"unit", "contracts", "ebpf", "kernels", "gpu"}
# May be skipped even before a release: other lanes demand them, or nobody can install them.
MAY_BE_MISSING = {"kernels", "pythons", "shared", "inspector"}
ONLY_LONG = {"install", "helm", "otelcol"}


def test_every_folder_of_tests_is_run() -> None:
    services = re.search(r"^SERVICES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert services
    folders = {
        found.parent.relative_to(ROOT / "tests").parts[0] for found in (ROOT / "tests").rglob("test_*.py")
    }
    assert folders == {*services[1].split(), *ELSEWHERE}


def demanded(path: str, pattern: str) -> set[str]:
    found = re.search(pattern, (ROOT / path).read_text(), re.MULTILINE)
    assert found, path
    return set(found[1].split())


def test_what_can_be_skipped_may_not_be_skipped_by_ci_and_before_a_release() -> None:
    named = {
        found
        for path in under("tests", ".py")
        for found in re.findall(r"\brequire\(\s*\"(\w+)\"", path.read_text())
    }
    long = demanded("Makefile", r"^test-long: export INGERO_MUST_RUN = (.*)$")
    assert long == named - MAY_BE_MISSING
    assert demanded(".ci/run", r'^must="([^"$]*)"$') == long - ONLY_LONG


def test_a_missing_tool_of_containers_fails_where_they_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("INGERO_MUST_RUN", "ebpf")
    with pytest.raises(pytest.skip.Exception, match="no podman, no runc"):
        containers.need()
    monkeypatch.setenv("INGERO_MUST_RUN", "ebpf containers")
    with pytest.raises(pytest.fail.Exception, match="no podman, no runc"):
        containers.need()
