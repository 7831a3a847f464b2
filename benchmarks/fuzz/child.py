"""Tries inputs of one target, in a process of its own: a crash must not end the run.

Which input is being tried stands in shared memory, so that whoever started us can make
it again when we are no more.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import signal
import struct
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.fuzz.mutate import chance_of
from benchmarks.fuzz.target import Target
from ingero.errors import IngeroError

HANG_CPU_S = 2.0
MEMORY_BYTES = 6 << 30
GROWTH_BYTES = 48 << 20  # since a third of the time was over: caches are filled by then
PAGE = os.sysconf("SC_PAGE_SIZE")
STATE = struct.Struct("<QQ")  # number being tried, how many were tried


class Hang(BaseException):
    """It computed for too long."""


def input_of(target: Target, corpus: Sequence[bytes], seed: int, number: int) -> bytes:
    return target.mutate(corpus, chance_of(target.name, seed, number), target.words)


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def signature(error: BaseException) -> str:
    """Failures with the same one are the same fault: what was raised, and where in ingero."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if "ingero" in each.filename and "benchmarks" not in each.filename]
    where = (ours or frames)[-1]
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno} in {where.name}"


def try_one(attempt: Any, target: Target, data: bytes) -> tuple[str, str] | None:
    """(signature, traceback) of a failure."""
    signal.setitimer(signal.ITIMER_PROF, HANG_CPU_S)
    try:
        attempt(data)
    except Hang as hang:
        return f"hang: {signature(hang)}", traceback.format_exc()
    except Exception as error:  # this is what is looked for: the input is kept
        if isinstance(error, (IngeroError, *target.documented)):
            return None
        return signature(error), traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return None


def _hang(*_: object) -> None:
    raise Hang(f"more than {HANG_CPU_S:g} s of CPU time")


def work(
    target: Target, seed: int, first: int, until_s: float, most: int, state: mmap.mmap, out: Any
) -> None:
    """Until the time or the number is reached; failures go to `out` as (number, signature, traceback)."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    signal.signal(signal.SIGPROF, _hang)
    corpus = target.corpus()
    began_s, early = time.monotonic(), 0
    number = first
    with target.ready() as attempt:
        while number < first + most and (now_s := time.monotonic()) < until_s:
            state[: STATE.size] = STATE.pack(number, number - first)
            failed = try_one(attempt, target, input_of(target, corpus, seed, number))
            if failed:
                out.send((number, *failed))
            number += 1
            if not early and now_s - began_s > (until_s - began_s) / 3:
                gc.collect()
                early = rss_bytes()
        state[: STATE.size] = STATE.pack(number, number - first)
        gc.collect()
        if early and rss_bytes() - early > GROWTH_BYTES:
            grown = f"memory grew by {(rss_bytes() - early) >> 20} MiB"
            out.send((number - 1, "memory grew", grown))
