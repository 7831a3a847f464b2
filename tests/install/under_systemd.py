"""Runs as a service of the virtual machine of test_systemd.py: what becomes of ingero.service, as facts.

Prints one line of JSON for each thing it looked at, then the machine is turned off.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

DB = "/var/lib/ingero/ingero.db"
UNIT = "ingero.service"
PATIENCE_S = 240  # emulated


def said(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def tell(name: str, outcome: str = "passed", why: str = "", **facts: Any) -> None:
    print("KERNELS " + json.dumps({"test": name, "outcome": outcome, "why": why, "facts": facts}), flush=True)


def until(true: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := true()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}\n{said('journalctl', '-u', UNIT, '-o', 'cat', '--no-pager')}")
        time.sleep(0.5)
    return value


def rows(statement: str) -> list[Any]:
    try:
        connection = sqlite3.connect(f"file:{DB}?mode=ro", uri=True)
        try:
            return connection.execute(statement).fetchall()
        finally:
            connection.close()
    except sqlite3.Error:  # not there yet
        return []


def shown(*names: str) -> dict[str, str]:
    words = [word for name in names for word in ("-p", name)]
    return dict(line.split("=", 1) for line in said("systemctl", "show", UNIT, *words).splitlines())


def recordings() -> list[bool]:
    """For each whether it was closed."""
    return [row[0] is not None for row in rows("SELECT ended_ns FROM recording ORDER BY id")]


def launches(pid: str, recording: int) -> int:
    began = rows(f"SELECT started_ns FROM recording WHERE id = {recording}")
    if not began:
        return 0
    counted = rows(
        "SELECT SUM(count) FROM operations WHERE op = 'cuLaunchKernel'"
        f" AND pid = {pid} AND bucket_start_ns >= {began[0][0]}"
    )
    return int(counted[0][0] or 0) if counted else 0


def job(python: str, stub: str) -> str:
    """Of somebody else, in a service of its own; its number."""
    unit = ("systemd-run", "--quiet", "--unit", "trainer", "--uid", "nobody")
    words = ("--steps", "100000000", "--kernels", "5", "--blocking", "--host-us", "1000")
    subprocess.run([*unit, "--setenv", f"LD_LIBRARY_PATH={stub}", python, "/srv/busy.py", *words], check=True)
    return str(
        until(lambda: said("systemctl", "show", "trainer", "-p", "MainPID", "--value"), "the job runs")
    )


def judge(python: str, stub: str) -> None:
    until(lambda: shown("ActiveState")["ActiveState"] == "active", "the unit is active")
    until(lambda: recordings() == [False], "it records")
    tell("it starts with the machine", release=os.uname().release, system=said("systemctl", "--version"))
    tell("security", told=said("systemd-analyze", "security", "--no-pager", UNIT))

    pid = job(python, stub)
    until(lambda: launches(pid, 1) > 0, "the job is traced")
    status = Path(f"/proc/{shown('MainPID')['MainPID']}/status").read_text()
    rights = int(re.search(r"CapEff:\s*(\w+)", status)[1], 16)
    memory = int(re.search(r"VmRSS:\s*(\d+)", status)[1])
    tell("it traces a job of another user", launches=launches(pid, 1), rights=rights, resident_kib=memory)

    subprocess.run(["systemctl", "restart", UNIT], check=True)
    until(lambda: recordings() == [True, False], "it records anew, and what it had recorded is complete")
    until(lambda: launches(pid, 2) > 0, "the job is traced again")
    tell("it survives a restart", **shown("Result", "NRestarts"))

    subprocess.run(["systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT], check=True)
    until(lambda: len(recordings()) == 3, "it comes again when it was killed")
    until(lambda: launches(pid, 3) > 0, "the job is traced once more")
    tell("it comes again when it was killed", **shown("NRestarts"))

    subprocess.run(["systemctl", "stop", UNIT], check=True)
    told = shown("ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
    alive = said("systemctl", "is-active", "trainer")
    tell("it stops cleanly", recordings=recordings(), job=alive, **told)
    warnings = said("journalctl", "-u", UNIT, "-p", "warning", "-o", "cat", "--no-pager")
    tell("what is left", run=Path("/run/ingero").exists(), warnings=warnings)


if __name__ == "__main__":
    try:
        judge(*sys.argv[1:])
    except Exception as error:
        tell(str(error).splitlines()[0] or "error", "failed", f"{traceback.format_exc()}\n{error}")
    print("KERNELS-END ", flush=True)
    subprocess.run(["systemctl", "poweroff", "--force", "--force"])
