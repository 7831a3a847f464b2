"""Cards asked once a second, in a thread that nobody ever waits for.

A call into the driver may take seconds, or never return. Whoever takes the news gets
what there is; a round that has been going on for too long is told once as not watched,
and the samples that are missing meanwhile are missing, not zero. The driver may go and
come back: then all begins anew.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from ingero.capture.gpu_cards import CardReader
from ingero.model.gpus import GpuCard, GpuNews, GpuProcess, GpuSample
from ingero.native.nvml import CardLostError, Nvml, NvmlMissingError

EVERY_S = 1.0
AGAIN_S = 30.0  # before a driver that is not there is asked for again
HUNG_NS = 5_000_000_000  # a round over eight cards takes a fifth of a second
CARDS_EVERY_NS = 10_000_000_000  # clocks and limits may be set anew
MAX_KEPT = 4096  # samples nobody took


class GpuPoller:
    """Looks at every card until it is stopped."""

    def __init__(self, every_s: float = EVERY_S, open_nvml: Callable[[], Nvml] = Nvml) -> None:
        self._every_s, self._open = every_s, open_nvml
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._samples: deque[GpuSample] = deque(maxlen=MAX_KEPT)
        self._processes: deque[GpuProcess] = deque(maxlen=MAX_KEPT)
        self._cards: dict[int, GpuCard] = {}
        self._trouble: dict[str, bool] = {}  # what went wrong: whether it was told
        self._round_ns: int | None = None  # when the round that is going on began
        self._told_hung = False
        self._known: dict[int, GpuCard] = {}
        self._thread = threading.Thread(target=self._work, name="gpus", daemon=True)

    def start(self) -> GpuPoller:
        self._thread.start()
        return self

    def stop(self, wait_s: float = 0.2) -> None:
        """Ask the thread to end; one that hangs in the driver is left behind."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def take(self) -> GpuNews:
        """Everything since the last call; never waits."""
        self._notice_hang()
        with self._lock:
            samples, processes = tuple(self._samples), tuple(self._processes)
            cards, self._cards = tuple(self._cards.values()), {}
            self._samples.clear()
            self._processes.clear()
            new = tuple(why for why, told in self._trouble.items() if not told)
            self._trouble.update(dict.fromkeys(new, True))
        return GpuNews(cards, samples, processes, new)

    def _notice_hang(self) -> None:
        began = self._round_ns
        if began is not None and time.monotonic_ns() - began > HUNG_NS:
            self._tell(f"NVML has not answered for {HUNG_NS // 1_000_000_000} s")

    def _tell(self, why: str) -> None:
        with self._lock:
            self._trouble.setdefault(why, False)

    # --- in the thread --------------------------------------------------------------

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            except NvmlMissingError as error:
                self._tell(str(error))
            except Exception as error:  # a library of another age: the trace goes on without it
                self._tell(f"NVML: {type(error).__name__}: {error}")
            self._round_ns = None
            self._stop.wait(AGAIN_S)

    def _watch(self) -> None:
        """Until it is stopped or the driver goes."""
        self._round_ns = time.monotonic_ns()
        nvml = self._open()
        try:
            driver = _text(nvml.must(nvml.api.nvmlSystemGetDriverVersion))
            readers: dict[int, CardReader] = {}
            count = nvml.count()
            if not count:
                self._tell("NVML lists no GPU")
            described_ns: int | None = None
            while not self._stop.is_set():
                self._round_ns = began_ns = time.monotonic_ns()
                describe = described_ns is None or began_ns - described_ns >= CARDS_EVERY_NS
                described_ns = began_ns if describe else described_ns
                for gpu_id in range(count):
                    self._look(nvml, gpu_id, readers, driver, describe)
                self._round_ns = None
                self._stop.wait(max(0.0, self._every_s - (time.monotonic_ns() - began_ns) / 1e9))
        finally:
            if not self._stop.is_set() or self._round_ns is None:
                nvml.close()

    def _look(
        self, nvml: Nvml, gpu_id: int, readers: dict[int, CardReader], driver: str | None, describe: bool
    ) -> None:
        try:
            if gpu_id not in readers:
                readers[gpu_id] = CardReader(nvml, gpu_id, driver)
            reader = readers[gpu_id]
            sample = reader.sample()
            processes = reader.processes(sample.at_ns)
            card = reader.card() if describe else None
        except CardLostError as error:
            readers.pop(gpu_id, None)  # a reset may bring it back
            self._tell(f"GPU {gpu_id}: {error}")
            sample, processes, card = GpuSample(gpu_id, time.monotonic_ns(), lost=True), [], None
        for what, why in nvml.unsupported(gpu_id).items() if describe else ():
            if "ermission" in why:
                self._tell(f"GPU {gpu_id}: no permission to ask for {what}")
        with self._lock:
            self._samples.append(sample)
            self._processes.extend(processes)
            if card is not None and card != self._known.get(gpu_id):
                self._known[gpu_id] = self._cards[gpu_id] = card


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
