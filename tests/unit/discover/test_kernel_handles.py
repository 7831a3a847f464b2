"""Names behind the driver's handles: read only where one place fits all of them."""

from __future__ import annotations

import ctypes
import os
import struct

import pytest

from ingero.discover.kernel_handles import MAX_TRIES, HandleNames

NAMES = [b"_Z6matmulPf", b"softmax_kernel", b"_ZN2at6native3addE", b"triton_poi_fused_0"]


class Driver:
    """Handles as a driver makes them: a structure with a pointer to the name at `at`."""

    def __init__(self, names: list[bytes], at: int = 8, also: int | None = None) -> None:
        self._texts = [ctypes.create_string_buffer(name) for name in names]
        self._blocks = [ctypes.create_string_buffer(512) for _ in names]
        for text, block in zip(self._texts, self._blocks, strict=True):
            for place in (at, also):
                if place is not None:
                    struct.pack_into("<Q", block, place, ctypes.addressof(text))
        self.handles = [ctypes.addressof(block) for block in self._blocks]


def read(driver: Driver, names: HandleNames | None = None) -> dict[int, bytes]:
    return (names or HandleNames()).names(os.getpid(), driver.handles)


@pytest.mark.parametrize("at", [0, 8, 48, 248])
def test_the_place_is_found_wherever_it_is(at: int) -> None:
    driver = Driver(NAMES, at)
    assert list(read(driver).values()) == NAMES


def test_two_handles_prove_nothing() -> None:
    assert read(Driver(NAMES[:2])) == {}


def test_one_without_a_name_spoils_the_place() -> None:
    assert read(Driver([*NAMES, b"\x01\x02"])) == {}


def test_the_same_name_behind_all_is_something_else() -> None:
    """A version string, say."""
    assert read(Driver([b"version"] * 4)) == {}


def test_two_places_that_fit_are_none() -> None:
    assert read(Driver(NAMES, 8, also=64)) == {}


def test_once_found_a_single_handle_is_enough() -> None:
    names, first, second = HandleNames(), Driver(NAMES), Driver([b"late_one"])
    assert len(read(first, names)) == 4
    assert list(read(second, names).values()) == [b"late_one"]


def test_numbers_that_are_no_addresses_have_no_names_and_are_given_up() -> None:
    names = HandleNames()
    for _ in range(MAX_TRIES):
        assert names.names(os.getpid(), [1, 2, 3, 1 << 60]) == {}
    driver = Driver(NAMES)
    assert len(names.names(os.getpid(), [*driver.handles, 1, 2, 3, 1 << 60])) == 4


def test_a_process_that_is_gone_has_no_names() -> None:
    assert HandleNames().names(2**22 + 1, Driver(NAMES).handles) == {}
