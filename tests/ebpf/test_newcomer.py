"""The first ten minutes: every step prints the next one, and what it prints runs as it stands.

Only the build is one that is there already. Nothing is typed that README or a step before did not show.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
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


def typed(line: str, shell: dict[str, str]) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(
        ["bash", "-c", line], cwd=ROOT, env=shell, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, (line, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout + done.stderr


def steps(text: str) -> list[str]:
    return STEP.findall(text.partition("Ask the recording yourself:")[2])


def one(commands: list[str], word: str) -> str:
    (found,) = [each for each in commands if word in shlex.split(each)]
    return found


def look_in_a_browser(line: str, shell: dict[str, str], folder: Path) -> None:
    """The dashboard is started, and its page answers at the address it prints; Ctrl-C ends it."""
    with (folder / "dashboard").open("w+") as out:
        process = subprocess.Popen(
            shlex.split(line), cwd=ROOT, env=shell, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            printed = folder / "dashboard"
            address = until(lambda: re.search(r"https://[^\s#]+", printed.read_text()), "a link was printed")
            own = ssl.create_default_context()
            own.check_hostname, own.verify_mode = False, ssl.CERT_NONE  # it signed its certificate itself
            with urllib.request.urlopen(address[0], context=own, timeout=20) as page:
                assert b"ingero" in page.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0, printed.read_text()
        finally:
            process.kill()
            process.wait()


def test_a_newcomer_gets_from_make_demo_to_a_report_by_what_is_printed(
    place: Place, shell: dict[str, str]
) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo " in readme
    first = steps(typed("make -o .venv/installed demo", shell))
    assert [shlex.split(each)[1] for each in first] == ["explain", "explain", "query", "dashboard", "demo"]
    for line in first[:1] + first[2:3]:
        assert typed(line, shell).strip()
    live = typed(one(first, "--live"), shell)
    assert "Diagnosis of" in live
    then = steps(live)
    assert [shlex.split(each)[1] for each in then] == ["explain", "explain", "query", "dashboard", "trace"]
    assert re.search(r"\[(CRITICAL|HIGH|MEDIUM)\] .* takes the CPU", typed(one(then, "-v"), shell))
    report = ROOT / "report.html"
    try:
        assert "Open it in a browser" in typed(one(then, "report.html"), shell)
        assert report.stat().st_size < MOST_BYTES
    finally:
        report.unlink(missing_ok=True)
    look_in_a_browser(one(then, "dashboard"), shell, place.folder)


def test_explain_tells_people_where_to_look_next_and_scripts_nothing(
    place: Place, shell: dict[str, str]
) -> None:
    typed(f"{shlex.quote(str(ROOT / '.venv/bin/ingero'))} demo --no-gpu --no-tui -d {place.db}", shell)
    explain = f"{ROOT / '.venv/bin/ingero'} explain -d {place.db}"
    assert "Next:" not in typed(explain, shell)
    seen = typed(f"script -qec {shlex.quote(explain)} /dev/null", shell | {"PAGER": "", "TERM": "xterm"})
    assert re.search(r"Next: \S*ingero dashboard -d \S+", seen)
