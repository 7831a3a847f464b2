"""When the GPU is usually done, told from what a thread sees that loses its core now and then."""

from __future__ import annotations

import ctypes
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

HERE = Path(__file__).parent
PROBES = HERE.parents[2] / "probes"
MS = 1_000_000


class Bounds(ctypes.Structure):
    _fields_ = (("after_ns", ctypes.c_uint64), ("before_ns", ctypes.c_uint64), ("seen", ctypes.c_uint64))


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    made = tmp_path_factory.mktemp("probes") / "bounds.so"
    words = ["cc", "-O1", "-shared", "-fPIC", "-I", str(PROBES), str(HERE / "bounds.c"), "-o", str(made)]
    subprocess.run(words, check=True)
    loaded = ctypes.CDLL(str(made))
    for name in ("after", "before", "exactly"):
        getattr(loaded, name).argtypes = (ctypes.POINTER(Bounds), ctypes.c_uint64)
    loaded.usually.restype = ctypes.c_uint64
    loaded.usually.argtypes = (ctypes.POINTER(Bounds),)
    return loaded


def told_of_late(
    library: ctypes.CDLL, waits: int, wait: Callable[[], tuple[float, float, float | None]]
) -> float:
    """Time told to be late, of what was. A wait: when the thread left, when it was back, and when all
    was done; or when it saw that and never left (then the first two do not count)."""
    bounds, told, true = Bounds(), 0.0, 0.0
    for number in range(waits):
        left, back, done = wait()
        if back == left:
            library.exactly(bounds, int(left))
            continue
        library.after(bounds, int(left))
        library.before(bounds, int(back))
        if number > waits / 20 and done is not None:
            told += max(back - max(library.usually(bounds), left), 0)
            true += back - done
    return told / true


@pytest.mark.parametrize("seen", [0.5, 0.1, 0.02, 0.0])
@pytest.mark.parametrize("longer", [0.0, 0.01, 0.05])
def test_a_thread_that_loses_its_core_at_any_time(library: ctypes.CDLL, seen: float, longer: float) -> None:
    """Of waits of 8 ms, some twice as long, `seen` end before its eyes."""
    chance = random.Random(4)

    def wait() -> tuple[float, float, float | None]:
        done = 8 * MS * chance.uniform(0.98, 1.02) * (2 if chance.random() < longer else 1)
        if chance.random() < seen:
            return done, done, done
        return chance.uniform(0, done), done + chance.expovariate(1 / (3 * MS)), done

    assert told_of_late(library, 4000, wait) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("odd", [0.0, 0.01, 0.03])
def test_a_few_waits_that_noise_made_longer_do_not_hide_the_others(library: ctypes.CDLL, odd: float) -> None:
    """A limit takes the core away at 11 ms and gives it back at 16.2; all is done at 11.4."""
    chance = random.Random(5)

    def wait() -> tuple[float, float, float | None]:
        if chance.random() < odd:
            return 16.5 * MS, 16.5 * MS, None
        return chance.uniform(10.7, 11) * MS, chance.uniform(16.2, 16.3) * MS, 11.4 * MS

    assert 0.3 < told_of_late(library, 1000, wait) < 1  # nothing says where between the two it was


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_other_work_is_learnt_within_a_few_waits(library: ctypes.CDLL, factor: float) -> None:
    bounds = Bounds()
    for _ in range(100):
        library.exactly(bounds, 8 * MS)
    for _ in range(12):
        library.exactly(bounds, int(8 * MS * factor))
    assert library.usually(bounds) == pytest.approx(8 * MS * factor, rel=0.15)


@given(st.lists(st.tuples(st.sampled_from(["after", "before", "exactly"]), st.integers(0, 1 << 44))))
def test_the_bounds_never_pass_each_other(library: ctypes.CDLL, seen: list[tuple[str, int]]) -> None:
    bounds = Bounds()
    for what, ns in seen:
        getattr(library, what)(bounds, ns)
        assert not bounds.before_ns or bounds.after_ns <= bounds.before_ns
        assert bounds.after_ns <= max(each for _, each in seen)
        assert bounds.before_ns <= max(each for _, each in seen)
