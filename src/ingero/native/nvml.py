"""NVML through nvidia-ml-py: one question at a time, each with an answer or a reason.

What a card does not support is asked once and is None from then on. A card that is lost,
or a driver that went away, is an error of its own: all further answers would be wrong.
Calls may block for as long as the driver likes: whoever asks does so in a thread that
nobody waits for.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
# Nothing to be had from this card by this question, now or later.
NEVER = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NO_PERMISSION", "ARGUMENT_VERSION_MISMATCH", "DEPRECATED",
         "VGPU_ECC_NOT_SUPPORTED", "INVALID_ARGUMENT", "CORRUPTED_INFOROM")  # fmt: skip
LOST = ("GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND", "INSUFFICIENT_POWER", "IRQ_ISSUE")
# The library and the driver do not understand each other (any more): all has to begin anew.
GONE = ("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "LIBRARY_NOT_FOUND")


class NvmlMissingError(Exception):
    """There is no NVML to ask: no library, no driver, or not the right one."""


class CardLostError(Exception):
    """The card does not answer and will not."""


class Nvml:
    """The library, opened; `close` may be left out where the driver hangs."""

    def __init__(self) -> None:
        try:
            self.api: Any = importlib.import_module("pynvml")
        except ImportError:
            raise NvmlMissingError("nvidia-ml-py is not installed (pip install 'ingero[gpu]')") from None
        self._never = self._codes(NEVER)
        self._lost = self._codes(LOST)
        self._gone = self._codes(GONE)
        self._unsupported: dict[int, dict[str, str]] = {}
        try:
            self.api.nvmlInit()
        except self.api.NVMLError as error:
            raise NvmlMissingError(f"NVML: {error}") from None

    def _codes(self, names: tuple[str, ...]) -> frozenset[int]:
        return frozenset(getattr(self.api, f"NVML_ERROR_{name}", -1) for name in names)

    def count(self) -> int:
        return int(self.must(self.api.nvmlDeviceGetCount))

    def device(self, index: int) -> Any:
        return self.must(self.api.nvmlDeviceGetHandleByIndex, index)

    def must(self, work: Callable[..., T], *arguments: Any) -> T:
        """The answer; without one nothing else can be asked."""
        try:
            return work(*arguments)
        except self.api.NVMLError as error:
            raise self._classified(error) from None

    def ask(self, card: int, device: Any, function: str, *arguments: Any) -> Any:
        """What a function of the library answers about a card, or None; names are its constants."""
        what = " ".join((function, *(each for each in arguments if _is_name(each))))
        if what in self._unsupported.get(card, ()):
            return None
        work = getattr(self.api, function, None)
        values = [getattr(self.api, str(each), None) if _is_name(each) else each for each in arguments]
        if work is None or None in values:
            return self._never_again(card, what, "not in this nvidia-ml-py")
        try:
            return work(device, *values)
        except self.api.NVMLError as error:
            if error.value in self._lost | self._gone:
                raise self._classified(error) from None
            if error.value in self._never:
                self._never_again(card, what, str(error))
            return None  # no sample in the buffer, a timeout: the next time there may be one

    def _never_again(self, card: int, what: str, why: str) -> None:
        self._unsupported.setdefault(card, {})[what] = why

    def _classified(self, error: Any) -> Exception:
        if error.value in self._lost:
            return CardLostError(str(error))
        return NvmlMissingError(f"NVML: {error}")

    def unsupported(self, card: int) -> dict[str, str]:
        """What was asked in vain, and the driver's reason."""
        return dict(self._unsupported.get(card, {}))

    def close(self) -> None:
        """Only from the thread that asks."""
        with contextlib.suppress(self.api.NVMLError):  # it went away before us
            self.api.nvmlShutdown()


def _is_name(argument: Any) -> bool:
    return isinstance(argument, str) and argument.startswith(("NVML_", "nvml"))


def within(seconds: float, work: Callable[[], T]) -> T:
    """What `work` returns or raises; TimeoutError when that takes longer. It is not stopped then."""
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # raised by whoever waits for the thread
            raised.append(error)

    thread = threading.Thread(target=run, name="nvml", daemon=True)
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return found[0]
