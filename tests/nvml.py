"""A real libnvidia-ml.so.1 of our own, which nvidia-ml-py loads: cards that a test sets as it likes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from ingero.capture.gpu_poller import GpuPoller
from ingero.model.gpus import GpuNews

SOURCE = Path(__file__).parent / "workloads" / "nvml_stub.c"
NAME = "libnvidia-ml.so.1"
STATE = "INGERO_NVML_STATE"


def build(folder: Path) -> Path:
    """The library in this folder; for another process: put it into LD_LIBRARY_PATH."""
    library = folder / NAME
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-Wl,-soname,{NAME}"]
    subprocess.run([*command, "-o", str(library), str(SOURCE)], check=True, capture_output=True, text=True)
    return library


def load(library: Path) -> None:
    """Into this process: a library of that name which is loaded already is the one nvidia-ml-py gets."""
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


class Cards:
    """What the stub's file says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, str] = {}
        self.set()

    def set(self, **values: int | str) -> Cards:
        """`set(gpu_percent=5)`; for one card `set(**{"1.gpu_percent": 5})`."""
        self._lines |= {name: str(value) for name, value in values.items()}
        return self._write()

    def fail(self, function: str, code: int) -> Cards:
        self._lines[f"error.{function}"] = str(code)
        return self._write()

    def process(self, pid: int, size: int, percent: int, card: int | None = None) -> Cards:
        name = "process" if card is None else f"{card}.process"
        self._lines[f"{name} {pid}"] = f"{size} {percent}"
        return self._write()

    def _write(self) -> Cards:
        made = self.path.with_suffix(".new")
        made.write_text("".join(f"{name} {value}\n" for name, value in self._lines.items()))
        made.replace(self.path)
        return self

    @property
    def environment(self) -> dict[str, str]:
        return {STATE: str(self.path)}

    def use(self) -> None:
        os.environ[STATE] = str(self.path)  # the library reads it through getenv


def wait_for(poller: GpuPoller, enough: Callable[[GpuNews], bool], seconds: float = 20.0) -> GpuNews:
    """News until there is what a test waits for; fails aloud when it never comes."""
    cards: dict[int, object] = {}
    samples, processes, trouble = [], [], []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        news = poller.take()
        cards |= {card.gpu_id: card for card in news.cards}
        samples += news.samples
        processes += news.processes
        trouble += news.trouble
        whole = GpuNews(tuple(cards.values()), tuple(samples), tuple(processes), tuple(trouble))  # type: ignore[arg-type]
        if enough(whole):
            return whole
        time.sleep(0.01)
    raise AssertionError(f"it never came; so far: {whole}")
