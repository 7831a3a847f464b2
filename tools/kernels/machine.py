"""A virtual machine with one kernel and our initramfs, emulated: nothing timed in it means anything."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable
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
# Its clock counts instructions, two nanoseconds each, and leaps to the next timer where it has none to
# execute: a busy host makes it slow, but nothing in it runs out of time, and its waits take no time here.
CLOCKS = {"own": ("-icount", "shift=1,sleep=off", "-rtc", "clock=vm"), "host": ()}
MEMORY_MB = 2048
# Without a word for so long the kernel hangs; a test that hangs is ended in there, by that clock.
SILENCE_S = 900
LIMIT_S = 3600
STEP = re.compile(r"at [\d.]+ s: (.*)")


@dataclass(slots=True)
class Outcome:
    """What one machine said."""

    tests: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: bool = False
    last_step: str = "the kernel"
    took_s: float = 0.0

    @property
    def facts(self) -> dict[str, Any]:
        return {name: value for each in self.tests.values() for name, value in each["facts"].items()}

    @property
    def failed(self) -> dict[str, str]:
        return {name: each["why"] for name, each in self.tests.items() if each["outcome"] == "failed"}


def boot(
    kernel: Path,
    image: Path,
    architecture: str,
    words: str,
    clock: str,
    log: Path,
    tell: Callable[[str], None] = lambda _: None,
    memory_mb: int = MEMORY_MB,
) -> Outcome:
    """Run it to its end, or until it hangs. All that it prints is in `log`; `tell` hears of each test."""
    command = [
        *QEMU[architecture], "-accel", TCG, *CLOCKS[clock], "-smp", "2", "-m", str(memory_mb), "-nographic",
        "-no-reboot", "-nic", "none", "-kernel", str(kernel), "-initrd", str(image), "-append",
        f"console={CONSOLE[architecture]} panic=-1 rdinit=/init quiet {WORDS[architecture]} {words}",
    ]  # fmt: skip
    began = time.monotonic()
    with log.open("wb") as output:
        machine = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            _until_it_ends(machine, log, tell)
        finally:
            machine.kill()
            machine.wait()
    outcome = read(log.read_text(errors="replace"))
    outcome.took_s = time.monotonic() - began
    return outcome


def _until_it_ends(machine: subprocess.Popen[bytes], log: Path, tell: Callable[[str], None]) -> None:
    began = last = time.monotonic()
    size, told = 0, 0
    while machine.poll() is None and time.monotonic() < min(last + SILENCE_S, began + LIMIT_S):
        time.sleep(0.5)
        if log.stat().st_size != size:
            size, last = log.stat().st_size, time.monotonic()
            outcomes = list(read(log.read_text(errors="replace")).tests.items())
            for name, each in outcomes[told:]:
                tell(f"{last - began:.0f} s: {name}: {each['outcome']}")
            told = len(outcomes)


def read(console: str) -> Outcome:
    """The lines that are meant for us, among all the others."""
    outcome = Outcome()
    for line in console.splitlines():
        if line.startswith(MARK):
            with contextlib.suppress(json.JSONDecodeError):  # it is still being written
                told = json.loads(line.removeprefix(MARK))
                outcome.tests[told.pop("test")] = told
        elif step := STEP.match(line):
            outcome.last_step = step[1]
        outcome.ended = outcome.ended or line.startswith(END)
    return outcome
