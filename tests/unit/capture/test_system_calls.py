"""What a thread waits for in a system call is known by name, and numbers are the kernel's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ingero.attach import syscalls
from ingero.model.layout import WaitClass

HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_numbers_are_those_of_the_kernels_own_header(machine: str) -> None:
    found = [Path(path) for path in HEADERS[machine] if Path(path).exists()]
    if not found:
        pytest.skip("the kernel's headers are not installed")
    text = found[0].read_text()
    named = {
        name: int(number) for name, number in re.findall(r"#define __NR3?_(?:3264_)?(\w+)\s+(\d+)", text)
    }
    renamed = {"newfstatat": "fstatat"} if machine == "aarch64" else {}
    for name, number in syscalls.NUMBERS[machine].items():
        known = named.get(name, named.get(renamed.get(name, ""), number))
        assert number == known, name


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_number_is_used_once_and_has_a_class(machine: str) -> None:
    numbers = syscalls.NUMBERS[machine]
    assert len(set(numbers.values())) == len(numbers)
    table = syscalls.wait_classes(machine)
    for name, number in numbers.items():
        assert table[number] != WaitClass.WAIT_UNKNOWN, name


def test_every_classified_call_has_a_number_on_this_projects_main_processor() -> None:
    names = {name for names in syscalls.CLASSES.values() for name in names.split()}
    assert names == set(syscalls.X86_64)
