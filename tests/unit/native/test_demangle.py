"""C++ names against the compiler's own tool, and names made to hurt."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingero.native import _shim
from ingero.native.demangle import BATCH, MAX_CHILDREN, MAX_NAME_BYTES, WITHIN_S, demangle

DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def reference(number: int) -> str:
    """S_, S0_, S1_ ...: what was said before."""
    if number == 0:
        return "S_"
    digits, rest = "", number - 1
    while True:
        digits, rest = DIGITS[rest % 36] + digits, rest // 36
        if not rest:
            return f"S{digits}_"


def bomb(levels: int) -> bytes:
    """f(A<int, int>, A<that, that>, A<those, those> ...): twice as long with every level."""
    pairs = "".join(f"S_I{reference(level)}{reference(level)}E" for level in range(1, levels + 1))
    return f"_Z1f1AIiiE{pairs}".encode()


def test_templates_namespaces_operators_and_compiler_suffixes_become_readable() -> None:
    names = {
        b"_ZN2at6native3addERKNS_6TensorES3_": "at::native::add(at::Tensor const&, at::Tensor const&)",
        b"_ZNSt6vectorIiSaIiEE3putERKi": "std::vector<int, std::allocator<int> >::put(int const&)",
        b"_ZN3fooplERKS_": "foo::operator+(foo const&)",
        b"_ZN3foo3barEv.cold": "foo::bar() [clone .cold]",
        b"_ZN12_GLOBAL__N_13runEv": "(anonymous namespace)::run()",
    }
    assert demangle(list(names)) == list(names.values())


def test_other_names_stay_as_they_are() -> None:
    assert demangle([b"cudaMalloc", b"_start", b"_Z", b"_Zgarbage", b"", b"_PyEval_Vector"]) == [
        "cudaMalloc",
        "_start",
        "_Z",
        "_Zgarbage",
        "",
        "_PyEval_Vector",
    ]
    assert demangle([]) == []


def test_names_of_a_real_library_are_those_of_cppfilt() -> None:
    tool, library = shutil.which("c++filt"), Path("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
    if tool is None or not library.exists():
        pytest.skip("no c++filt or libstdc++ here")
    listed = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True).stdout
    names = [line.split()[-1].partition(b"@")[0] for line in listed.splitlines()]
    names = [name for name in names if not re.search(rb"S[siod]", name)]  # the tool spells these out
    expected = subprocess.run(["c++filt"], input=b"\n".join(names), check=True, capture_output=True)
    assert demangle(names) == expected.stdout.decode().splitlines()


def test_a_name_that_stands_for_gigabytes_harms_nobody_and_spares_its_neighbours() -> None:
    names = [b"_Z1av", bomb(24), b"_Z1bv", bomb(40), b"_Z1cv", bomb(300), b"_Z1dv"]
    texts = demangle(names)
    assert texts[::2] == ["a()", "b()", "c()", "d()"]
    assert texts[3] == bomb(40).decode()


def test_many_such_names_are_given_up_on() -> None:
    names = [bomb(60)] * (MAX_CHILDREN + 4) + [b"_Z1av"]
    assert demangle(names) == [name.decode() for name in names]


def test_names_that_take_long_without_harm_are_given_up_on_together() -> None:
    """Each of these takes less than a name may take: no child is killed, and there are very many."""
    began = time.monotonic()
    names = [bomb(16)] * (3 * BATCH)
    assert len(demangle(names)) == len(names)
    assert time.monotonic() - began < 3 * WITHIN_S


def test_a_long_text_is_cut_and_a_long_name_not_tried() -> None:
    assert len(demangle([bomb(12)])[0]) == 4096
    long = b"_ZN" + b"1a" * MAX_NAME_BYTES + b"Ev"
    assert demangle([long]) == [long[:MAX_NAME_BYTES].decode()]


def test_control_characters_do_not_pass() -> None:
    assert demangle([b"_Z4a\x1b[mv", b"x\n\x9b"]) == ["a\ufffd[m()", "x\ufffd\ufffd"]


def test_no_child_and_no_descriptor_is_left() -> None:
    def held() -> tuple[list[str], str]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()  # of other tests, too
        return sorted(each.name for each in Path("/proc/self/fd").iterdir()), children

    before = held()
    demangle([b"_Z1av", bomb(40), b"_Z1bv"])
    assert held() == before


def test_a_name_that_does_not_end_is_refused() -> None:
    with pytest.raises(ValueError, match="end"):
        _shim.demangle(b"_Z1av", 1000)


pieces = st.sampled_from(
    [b"N", b"I", b"E", b"S_", b"S0_", b"T_", b"1A", b"3foo", b"K", b"P", b"Dp", b"F", b"v", b"L", b"X", b"J"]
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(pieces, max_size=60).map(b"".join) | st.binary(max_size=300), max_size=20))
def test_anything_can_be_asked(tails: list[bytes]) -> None:
    names = [b"_Z" + tail for tail in tails]
    texts = demangle(names)
    assert len(texts) == len(names)
    assert all(len(text) <= MAX_NAME_BYTES and "\0" not in text for text in texts)
