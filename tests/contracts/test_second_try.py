"""Only known nuisances are tried a second time, and what passes only then is told."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.contracts.tree import ROOT, parsed, text_of
from tests.second_try import Nuisance, nuisances, run

PATTERNS = sorted(test for each in nuisances() for test in each.tests)

# Each fails when it is run for the first time.
TESTS = """
from pathlib import Path

def first_time(name):
    seen = Path(__file__).with_name(name)
    was_there = seen.exists()
    seen.write_text("")
    return not was_there

def test_a_nuisance():
    assert not first_time("nuisance")

def test_another():
    assert not first_time("another")

def test_that_passes():
    assert Path(__file__).exists()
"""
KNOWN = [Nuisance(("test_sample.py::test_a_nuisance",), "another program had the core", "more cores")]


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("INGERO_SECOND_TRY", str(tmp_path / "told.txt"))
    monkeypatch.setenv("INGERO_ATTACH", "multi")
    (tmp_path / "test_sample.py").write_text(TESTS)
    return tmp_path


def test_a_nuisance_is_tried_again_and_told_with_its_reason(
    sample: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["test_sample.py", "-k", "not another", "-p", "no:cacheprovider"]
    assert run(words, KNOWN, sample) == 0
    told = "test_sample.py::test_a_nuisance (INGERO_ATTACH=multi): another program had the core\n"
    assert (sample / "told.txt").read_text() == told
    said = capfd.readouterr().out
    assert said.endswith(f"== passed only at the second try\n{told}")
    assert "1 passed" in said.rpartition("== once more")[2]  # and nothing else was run again


def test_any_other_failure_is_one_at_once(sample: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["test_sample.py", "-p", "no:cacheprovider"], KNOWN, sample) == pytest.ExitCode.TESTS_FAILED
    said = capfd.readouterr().out
    assert "once more" not in said
    assert said.endswith("no known nuisances:\ntest_sample.py::test_another\n")
    assert not (sample / "told.txt").exists()


def test_tests_that_cannot_be_run_are_not_tried_again(sample: Path) -> None:
    (sample / "test_sample.py").write_text("import nothing_of_this_name\n")
    assert run(["test_sample.py"], KNOWN, sample) == pytest.ExitCode.INTERRUPTED


def test_the_seed_is_printed(pytestconfig: pytest.Config) -> None:
    header = pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path=ROOT)
    assert "--hypothesis-seed=" in str(header)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_nuisance_names_a_file_of_tests_or_a_test(pattern: str) -> None:
    file, _, name = pattern.partition("::")
    assert (ROOT / file).name.startswith("test_")
    tests = {node.name for node in parsed(text_of(ROOT / file)).body if isinstance(node, ast.FunctionDef)}
    assert not name or name in tests


def test_a_nuisance_is_named_once_and_says_why() -> None:
    assert len(PATTERNS) == len(set(PATTERNS))
    for each in nuisances():
        assert len(each.reason.split()) > 5
        assert len(each.mended_by.split()) > 2


def test_what_is_covered_is_what_is_named() -> None:
    one = Nuisance(("tests/a/test_b.py::test_c", "tests/a/test_d.py"), "", "")
    assert one.covers("tests/a/test_b.py::test_c")
    assert one.covers("tests/a/test_b.py::test_c[x::y]")
    assert one.covers("tests/a/test_d.py::test_whatever")
    assert not one.covers("tests/a/test_b.py::test_c_and_more")
