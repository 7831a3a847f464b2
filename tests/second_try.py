"""Run tests; what fails and is a known nuisance is tried once more, everything else has failed.

`python -m tests.second_try WORDS` hands its words to pytest. tests/nuisances.toml names the tests that a
machine shared with others can fail, each with why that is and what would mend it. What passes only at the
second try is told with its reason, and written where INGERO_SECOND_TRY says, for `make test` to show at its
end. pytest loads this module as a plugin, to learn what failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LISTED = TESTS / "nuisances.toml"
OUTCOME = "INGERO_OUTCOME"


@dataclass(frozen=True)
class Nuisance:
    """Tests that may fail for one reason: files, or `file::test` for all its parameters."""

    tests: tuple[str, ...]
    reason: str
    mended_by: str

    def covers(self, test: str) -> bool:
        return any(test == each or test.startswith((f"{each}::", f"{each}[")) for each in self.tests)


def nuisances(path: Path = LISTED) -> list[Nuisance]:
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["nuisance"]
    return [Nuisance(tuple(each["tests"]), each["reason"], each["mended_by"]) for each in listed]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if OUTCOME in os.environ:
        found = {
            how: sorted({report.nodeid for report in terminalreporter.stats.get(how, [])})
            for how in ("passed", "failed", "error")
        }
        Path(os.environ[OUTCOME]).write_text(json.dumps(found), encoding="utf-8")


@dataclass(frozen=True)
class Tried:
    code: int
    failed: list[str]


def tried(words: Sequence[str], folder: Path) -> Tried:
    with tempfile.TemporaryDirectory() as kept:
        outcome = Path(kept) / "outcome.json"
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.second_try", *words],
            cwd=folder,
            env=os.environ | {OUTCOME: str(outcome)},
            check=False,
        )
        found = json.loads(outcome.read_text(encoding="utf-8")) if outcome.exists() else {}
    return Tried(done.returncode, sorted({*found.get("failed", []), *found.get("error", [])}))


def flags(words: Sequence[str], folder: Path) -> list[str]:
    """The words without what says which tests are meant."""
    return [word for word in words if not (folder / word.partition("::")[0]).exists()]


def run(words: Sequence[str], known: Sequence[Nuisance], folder: Path = TESTS.parent) -> int:
    first = tried(words, folder)
    if first.code != pytest.ExitCode.TESTS_FAILED:  # passed, or ended before all tests were run
        return first.code
    why = {test: each.reason for test in first.failed for each in known if each.covers(test)}
    unknown = [test for test in first.failed if test not in why]
    if unknown or not why:
        print("== not tried again, for these are no known nuisances:", *unknown, sep="\n", flush=True)
        return first.code
    print("== once more, only what failed and is listed in tests/nuisances.toml", flush=True)
    second = tried([*flags(words, folder), *why], folder)
    if second.code == pytest.ExitCode.OK:
        tell([f"{test}{shape()}: {reason}" for test, reason in why.items()])
    return second.code


def shape() -> str:
    named = os.environ.get("INGERO_ATTACH")
    return f" (INGERO_ATTACH={named})" if named else ""


def tell(lines: Sequence[str]) -> None:
    print("== passed only at the second try", *lines, sep="\n", flush=True)
    if "INGERO_SECOND_TRY" in os.environ:
        with Path(os.environ["INGERO_SECOND_TRY"]).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:], nuisances()))
