"""From nothing but Debian's Python: installed, checked, shown, traced, and gone again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.install.rooms import Room

pytestmark = pytest.mark.long

FOR_ALL = {"PIPX_HOME": "/opt/pipx", "PIPX_BIN_DIR": "/usr/local/bin"}
STUB = "ingero/scenarios/stub/lib"
# What pipx keeps for itself.
PIPX = ("opt/pipx", "home/alice/.local", "home/alice/.cache", "root/.cache", "root/.local")

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def wheel_in(room: Room) -> str:
    (found,) = (room.root / "srv/dist").glob("*.whl")
    return f"/srv/dist/{found.name}"


@pytest.fixture(scope="module")
def before(room: Room) -> set[str]:
    return room.files()


@pytest.fixture(scope="module")
def for_all(room: Room, before: set[str]) -> Room:
    """Installed for everybody, as docs/install.md says."""
    room.run("pipx", "install", wheel_in(room), **FOR_ALL)
    return room


def site(room: Room) -> Path:
    (found,) = (room.root / "opt/pipx/venvs/ingero/lib").glob("python3*/site-packages")
    return found


def test_sudo_finds_what_was_installed_for_everybody(for_all: Room) -> None:
    said = for_all.as_alice("sudo", "ingero", "check")
    assert "/sys/kernel/btf/vmlinux" in said
    assert "Yes: ingero can trace here" in said


def test_the_libraries_it_links_to_come_with_it(for_all: Room) -> None:
    assert not for_all.run(
        "sh", "-c", "find / -xdev -name 'libbpf*' -not -path '/opt/pipx/*' -not -path '/proc/*'"
    )
    assert "libbpf v1" in for_all.as_alice("ingero", "version")


def test_the_demo_runs_without_root(for_all: Room) -> None:
    said = for_all.as_alice(
        "ingero", "demo", "--no-gpu", "--no-tui", "--speed", "20", "incident", INGERO_DB="/tmp/demo.db"
    )
    assert "[HIGH] stress-ng" in said


def test_a_job_is_traced_and_can_be_asked_for(for_all: Room) -> None:
    inside = f"/{site(for_all).relative_to(for_all.root)}"
    python = "/opt/pipx/venvs/ingero/bin/python"
    job = (python, "/srv/busy.py", "--steps", "30", "--kernels", "20")
    stub = {"LD_LIBRARY_PATH": f"{inside}/{STUB}", "INGERO_DB": "/tmp/job.db", "INGERO_RUN_DIR": "/tmp/lock"}
    for_all.run("ingero", "trace", "--record-all", "--no-tui", "--", *job, given="\n\n", **stub)
    sql = "SELECT op, SUM(weight) AS calls FROM cuda_events GROUP BY op"
    rows = json.loads(for_all.run("ingero", "query", "--json", sql, INGERO_DB="/tmp/job.db"))
    assert {"op": "cuLaunchKernel", "calls": 600} in rows["rows"]
    assert "Diagnosis" in for_all.run("ingero", "explain", INGERO_DB="/tmp/job.db")


def test_an_extra_brings_what_it_needs(for_all: Room) -> None:
    """The hint is a command that runs as it stands."""
    hint = for_all.run("ingero", "mcp", "-d", "/tmp/job.db", code=2)
    command = hint.strip().splitlines()[-1].partition("Install them: ")[2]
    assert command == f"PIPX_HOME=/opt/pipx pipx inject ingero 'ingero[mcp] @ file://{wheel_in(for_all)}'"
    for_all.run("sh", "-c", command)
    said = for_all.run("ingero", "mcp", "-d", "/tmp/job.db", given=json.dumps(HELLO) + "\n")
    assert '"serverInfo"' in said


def test_where_sudo_does_not_look_the_message_says_how(for_all: Room) -> None:
    for_all.as_alice("pipx", "install", wheel_in(for_all))
    said = for_all.as_alice("ingero", "check")
    assert "sudo /home/alice/.local/bin/ingero trace" in said
    for_all.as_alice("sudo", "/home/alice/.local/bin/ingero", "check")
    for_all.as_alice("pipx", "uninstall", "ingero")


def test_nothing_is_left_when_it_is_uninstalled(for_all: Room, before: set[str]) -> None:
    for_all.run("pipx", "uninstall", "ingero", **FOR_ALL)
    left = for_all.files() - before
    assert not [each for each in left if "ingero" in each]
    assert not [each for each in left if not each.startswith(PIPX)]
