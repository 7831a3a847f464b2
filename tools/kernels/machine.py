"""A virtual machine with one kernel and our initramfs, emulated: nothing timed in it means anything."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "KERNELS "
END = "KERNELS-END "
QEMU = {
    "amd64": ("qemu-system-x86_64", "-M", "q35", "-cpu", "max,la57=off"),
    "arm64": ("qemu-system-aarch64", "-M", "virt", "-cpu", "cortex-a72"),
}
CONSOLE = {"amd64": "ttyS0", "arm64": "ttyAMA0"}
# A timer that a busy host emulates late is none that does not work.
WORDS = {"amd64": "no_timer_check", "arm64": ""}
# One thread for all cores: QEMU 7.2 gets cmpxchg16b wrong more often where they run side by side.
TCG = "tcg,thread=single"
MEMORY_MB = 2048
LIMIT_S = 540


@dataclass(slots=True)
class Outcome:
    """What one machine said."""

    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: bool = False
    took_s: float = 0.0

    @property
    def facts(self) -> dict[str, Any]:
        return {name: value for each in self.tests.values() for name, value in each["facts"].items()}

    @property
    def failed(self) -> dict[str, str]:
        return {name: each["why"] for name, each in self.tests.items() if each["outcome"] == "failed"}


def boot(kernel: Path, image: Path, architecture: str, words: str, log: Path) -> Outcome:
    """Run it to its end, or until it has had enough time; all that it printed is in `log`."""
    command = [
        *QEMU[architecture], "-accel", TCG, "-smp", "2", "-m", str(MEMORY_MB), "-nographic",
        "-no-reboot", "-nic", "none", "-kernel", str(kernel), "-initrd", str(image), "-append",
        f"console={CONSOLE[architecture]} panic=-1 rdinit=/init quiet {WORDS[architecture]} {words}",
    ]  # fmt: skip
    began = time.monotonic()
    with log.open("wb") as output:
        machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            machine.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()
    outcome = read(log.read_text(errors="replace"))
    outcome.took_s = time.monotonic() - began
    return outcome


def read(console: str) -> Outcome:
    """The lines that are meant for us, among all the others."""
    outcome = Outcome()
    for line in console.splitlines():
        if line.startswith(MARK):
            told = json.loads(line.removeprefix(MARK))
            outcome.tests[told.pop("test")] = told
        outcome.ended = outcome.ended or line.startswith(END)
    return outcome
