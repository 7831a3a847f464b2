"""The live view on a real terminal: the demo in a pseudo-terminal, quit with a key."""

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path


def test_the_demo_opens_the_live_view_and_q_ends_it_cleanly(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "HOME": str(tmp_path), "COLUMNS": "140", "LINES": "50"}
    command = [
        sys.executable,
        "-m",
        "ingero",
        "demo",
        "--no-gpu",
        "--speed",
        "4",
        "-d",
        str(tmp_path / "d.db"),
    ]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, close_fds=True
    )
    os.close(theirs)
    try:
        seen = read_until(ours, "cuLaunchKernel")
        os.write(ours, b"q")
        seen += read_until(ours, "Ask the recording yourself")
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    after = seen.rpartition("\x1b[?1049l")[2]
    assert "Diagnosis of demo" in after
    assert "Traceback" not in seen


def read_until(terminal: int, text: str, timeout_s: float = 40) -> str:
    """What comes until `text` does, escape sequences in between ignored."""
    seen, end = "", time.monotonic() + timeout_s
    while text not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen):
        assert time.monotonic() < end, f"{text} never came: {seen[-2000:]!r}"
        if select.select([terminal], [], [], 0.2)[0]:
            seen += os.read(terminal, 65536).decode(errors="replace")
    return seen
