"""The first ten minutes: every step prints the next one, and what it prints runs as it stands.

In a clone; only the build is one that is there already, but for `long`. Nothing is typed that README or a
step before did not show.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shlex
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.contracts.tree import ROOT
from tests.ebpf.real_runs import Place, until

pytestmark = pytest.mark.timeout(300)
STEP = re.compile(r"^  (\S*ingero .*?)  +\S", re.MULTILINE)  # a command, and what it is for
MOST_BYTES = 2 << 20


@pytest.fixture
def shell(place: Place) -> dict[str, str]:
    """The surroundings of somebody who has just come."""
    return place.environment(INGERO_DB=None, PATH=os.environ["PATH"])


@pytest.fixture
def clone(place: Place) -> Path:
    """What somebody gets from the repository: what is committed, and nothing that was built."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone: it has no history to clone from")
    folder = place.folder / "ingero"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True, timeout=120)
    return folder


@pytest.fixture
def built(clone: Path) -> Path:
    """The same with the ingero that was built already."""
    (clone / ".venv").symlink_to(ROOT / ".venv")
    return clone


def typed(line: str, folder: Path, shell: dict[str, str], timeout_s: float = 200) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder, env=shell, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


def seen(line: str, folder: Path, shell: dict[str, str]) -> str:
    """What is read of it on a terminal."""
    wide = shell | {"PAGER": "", "TERM": "xterm", "COLUMNS": "200"}
    text = typed(f"script -qec {shlex.quote(line)} /dev/null", folder, wide)
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def next_of(text: str) -> str:
    """The command that an answer ends with."""
    (found,) = re.findall(r"^Next: (.*?)(?:   \(|\r?$)", text, re.MULTILINE)
    return str(found)


def steps(text: str) -> list[str]:
    return STEP.findall(text.partition("Ask the recording yourself:")[2])


def one(commands: list[str], word: str) -> str:
    (found,) = [each for each in commands if word in shlex.split(each)]
    return found


def look_in_a_browser(line: str, folder: Path, shell: dict[str, str]) -> str:
    """The dashboard starts on a terminal, and its page answers at the address it prints; Ctrl-C ends it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", *shlex.split(line)],
        cwd=folder, env=shell, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    printed = ""

    def more() -> re.Match[str] | None:
        nonlocal printed
        with contextlib.suppress(OSError):
            while select.select([ours], [], [], 0)[0] and (text := os.read(ours, 65536)):
                printed += text.decode()
        return re.search(r"(https://[^\s#]+)[^$]*^Next: [^)]*\)", printed, re.MULTILINE)

    try:
        address = until(more, "a link was printed, and what comes next")
        own = ssl.create_default_context()
        own.check_hostname, own.verify_mode = False, ssl.CERT_NONE  # it signed its certificate itself
        with urllib.request.urlopen(address[1], context=own, timeout=20) as page:
            assert b"ingero" in page.read()
        os.write(ours, b"\x03")
        until(lambda: more() and process.poll() is not None, "Ctrl-C ends it")
        assert process.wait() == 0, printed
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return printed.replace("\r", "")


def test_a_newcomer_gets_from_make_demo_to_a_report_by_what_is_printed(
    built: Path, shell: dict[str, str]
) -> None:
    assert "make demo " in (built / "README.md").read_text(encoding="utf-8")
    first = steps(typed("make -o .venv/installed demo", built, shell))
    assert [shlex.split(each)[1] for each in first] == ["explain", "explain", "query", "dashboard", "demo"]
    for line in first[:1] + first[2:3]:
        assert typed(line, built, shell).strip()
    assert "Diagnosis of demo" in typed(".venv/bin/ingero explain", built, shell)  # as it stands in README
    live = typed(one(first, "--live"), built, shell)
    assert "Diagnosis of" in live
    then = steps(live)
    assert [shlex.split(each)[1] for each in then] == ["explain", "explain", "query", "dashboard", "trace"]
    proofs = seen(one(then, "-v"), built, shell)
    assert re.search(r"\[(CRITICAL|HIGH|MEDIUM)\] .* takes the CPU", proofs)
    assert next_of(proofs) == one(then, "dashboard")
    assert "Open it in a browser" in typed(one(then, "report.html"), built, shell)
    assert (built / "report.html").stat().st_size < MOST_BYTES
    calls = seen(one(then, "query"), built, shell)
    assert "cuLaunchKernel" in calls
    assert "Diagnosis of" in typed(next_of(calls), built, shell)
    page = look_in_a_browser(one(then, "dashboard"), built, shell)
    assert "Diagnosis of" in typed(next_of(page), built, shell)


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_make_demo_needs_nothing_but_a_clone(clone: Path, shell: dict[str, str]) -> None:
    home = {"HOME": os.environ.get("HOME", "/")}  # where the index of packages is named, perhaps
    for line in steps(typed("make demo", clone, shell | home, timeout_s=1200))[:3]:
        assert ".venv/bin/ingero" in line
        assert typed(line, clone, shell | home).strip()


def test_explain_tells_people_where_to_look_next_and_scripts_nothing(
    place: Place, shell: dict[str, str]
) -> None:
    typed(f"{shlex.quote(str(ROOT / '.venv/bin/ingero'))} demo --no-gpu --no-tui -d {place.db}", ROOT, shell)
    explain = f"{ROOT / '.venv/bin/ingero'} explain -d {place.db}"
    assert "Next:" not in typed(explain, ROOT, shell)
    assert re.search(r"\S*ingero dashboard -d \S+", next_of(seen(explain, ROOT, shell)))
