"""Probe sites: what is emulated, stepped or refused was measured on a 6.18 kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero.native.elf import EM_AARCH64, EM_X86_64
from ingero.native.instructions import probe_site

EMULATED = (
    "55 5d c3",
    "41 54 41 5c c3",
    "90 c3",
    "66 90 c3",
    "66 66 90 c3",
    "0f1f00 c3",
    "0f1f4000 c3",
    "0f1f440000 c3",
    "660f1f440000 c3",
    "0f1f8000000000 c3",
    "0f1f840000000000 c3",
    "eb00 c3",
    "e900000000 c3",
    "f2e900000000 c3",
    "e800000000 58 c3",
    "7400 c3",
    "0f8400000000 c3",
    "f27400 c3",
)
STEPPED = (
    "4883ec08 4883c408 c3",
    "31c0 c3",
    "4889f8 c3",
    "c3",
    "488d4708 c3",
    "6a00 58 c3",
    "e200 c3",
    "0f1fc0 c3",
    "660f1f840000000000 c3",
    "6666660f1f840000000000 c3",
    "48 55 5d c3",
    "66 50 66 58 c3",
)
REFUSED = (
    "662e0f1f840000000000 c3",
    "3e 7400 c3",
    "66 eb00 c3",
    "66 7400 c3",
    "66 e900000000 c3",
    "f0 ff07 c3",
)


def code(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


@pytest.mark.parametrize("text", EMULATED)
def test_an_emulated_first_instruction_is_a_cheap_site(text: str) -> None:
    site = probe_site(code(text), EM_X86_64)
    assert (site.offset, site.cheap, site.refused) == (0, True, False)


@pytest.mark.parametrize("text", EMULATED)
def test_endbr64_is_skipped_to_reach_an_emulated_instruction(text: str) -> None:
    site = probe_site(code("f30f1efa" + text), EM_X86_64)
    assert (site.offset, site.cheap) == (4, True)
    assert "endbr64" in site.reason


@pytest.mark.parametrize("text", STEPPED)
def test_a_stepped_instruction_is_named_with_its_bytes(text: str) -> None:
    site = probe_site(code(text), EM_X86_64)
    assert (site.offset, site.cheap, site.refused) == (0, False, False)
    assert f"costly: kernel must single-step {code(text)[:8].hex()}" in site.reason


@pytest.mark.parametrize("text", REFUSED)
def test_a_refused_instruction_is_never_offered(text: str) -> None:
    assert probe_site(code(text), EM_X86_64).refused


@pytest.mark.parametrize("text", REFUSED)
def test_before_a_refused_instruction_endbr64_itself_is_the_site(text: str) -> None:
    site = probe_site(code("f30f1efa" + text), EM_X86_64)
    assert (site.offset, site.cheap, site.refused) == (0, False, False)


def test_an_exchange_that_the_kernel_takes_for_a_nop_is_refused() -> None:
    assert probe_site(code("41 90 c3"), EM_X86_64).refused


def test_instructions_past_the_first_are_never_used() -> None:
    assert probe_site(code("31c0 55 c3"), EM_X86_64).offset == 0
    assert probe_site(code("f30f1efa 31c0 55"), EM_X86_64).offset == 4


def test_no_code_is_refused() -> None:
    assert probe_site(b"", EM_X86_64).refused


def test_arm64_skips_bti_only_when_that_helps_and_never_paciasp() -> None:
    bti, paciasp, nop = (word.to_bytes(4, "little") for word in (0xD503245F, 0xD503233F, 0xD503201F))
    store = 0xA9BF7BFD.to_bytes(4, "little")  # stp x29, x30, [sp, #-16]!
    assert probe_site(bti + nop, EM_AARCH64).offset == 4
    assert probe_site(bti + store, EM_AARCH64).offset == 0
    assert not probe_site(paciasp + nop, EM_AARCH64).cheap
    assert "untested" in probe_site(store, EM_AARCH64).reason


def test_an_unknown_machine_promises_nothing() -> None:
    assert not probe_site(b"\x55", 243).cheap


@given(st.binary(max_size=40), st.sampled_from((EM_X86_64, EM_AARCH64, 0)))
def test_any_bytes_give_a_site_within_the_first_instruction(data: bytes, machine: int) -> None:
    site = probe_site(data, machine)
    assert site.offset in (0, 4)
    assert site.offset <= len(data)
    assert not (site.cheap and site.refused)
