"""Where a uprobe on a function is cheap: on an instruction the kernel emulates.

The kernel runs the instruction under a probe in one of two ways: it emulates the few
it knows (about 1 us a hit), or it single-steps a copy of it (12 to 21 us). Only the
first instruction, or the one right after `endbr64`, may be chosen: further on the
return address is no longer where return probes look for it.
This is not a disassembler; the rules are those of arch/x86/kernel/uprobes.c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ingero.native.elf import EM_AARCH64, EM_X86_64

WINDOW_BYTES = 32  # enough of a function to decide

ENDBR64 = b"\xf3\x0f\x1e\xfa"
# Kernels with the patch of April 2025 (6.18 has it) compare with their own table of long nops; other
# encodings are single-stepped, and so are these on older kernels.
LONG_NOPS = (
    bytes.fromhex("0f1f00"),
    bytes.fromhex("0f1f4000"),
    bytes.fromhex("0f1f440000"),
    bytes.fromhex("660f1f440000"),
    bytes.fromhex("0f1f8000000000"),
    bytes.fromhex("0f1f840000000000"),
)
# es, cs, ss, ds, lock: registering a probe there fails, and one refusal fails a whole multi link.
REFUSED_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\xf0")
LEGACY_PREFIXES = REFUSED_PREFIXES | frozenset(b"\x64\x65\x66\x67\xf2\xf3")

ARM64_NOP = 0xD503201F
ARM64_BTI = frozenset((0xD503241F, 0xD503245F, 0xD503249F, 0xD50324DF))


@dataclass(frozen=True, slots=True)
class Site:
    """Where to put the probe, counted from the function's first byte, and what that costs.

    A refused site must not be attached at all: the kernel says no, or would break the function.
    """

    offset: int
    cheap: bool
    reason: str
    refused: bool = False


def probe_site(code: bytes, machine: int) -> Site:
    """The cheapest allowed place in a function that begins with these bytes."""
    if machine == EM_X86_64:
        return _site_x86(code)
    if machine == EM_AARCH64:
        return _site_arm64(code)
    return Site(0, False, f"costly: machine type {machine} is not known, nothing is assumed of it")


def _site_x86(code: bytes) -> Site:
    offset = len(ENDBR64) if code.startswith(ENDBR64) else 0
    body = code[offset:]
    past = " past endbr64" if offset else ""
    if not body:
        return Site(0, False, "no readable code", refused=not code)
    refusal = _refusal_x86(body)
    if refusal and offset:  # endbr64 itself is slow but allowed
        return Site(0, False, f"costly: kernel must single-step {ENDBR64.hex()}")
    if refusal:
        return Site(0, False, refusal, refused=True)
    emulated = _emulated_x86(body)
    if emulated:
        return Site(offset, True, f"{emulated}{past}: emulated")
    return Site(offset, False, f"costly: kernel must single-step {body[:8].hex()}{past}")


def _refusal_x86(body: bytes) -> str | None:
    opcode = body.lstrip(bytes(LEGACY_PREFIXES))
    prefixes = body[: len(body) - len(opcode)]
    if REFUSED_PREFIXES & set(prefixes):
        return f"refused: the kernel takes no probe on a prefix as in {body[:8].hex()}"
    if 0x66 in prefixes and _is_branch(opcode):
        return f"refused: the kernel takes no probe on a 16-bit branch as in {body[:8].hex()}"
    if 0x40 < (opcode[:1] or b"\0")[0] <= 0x4F and opcode[0] & 1 and opcode[1:2] == b"\x90":
        return f"refused: the kernel would take xchg ({body[:8].hex()}) for a nop"
    return None


def _emulated_x86(body: bytes) -> str | None:
    for name, matches in _EMULATED_X86:
        if matches(body):
            return name
    return None


def _is_push(body: bytes) -> bool:
    opcode = body[1:2] if body[:1] == b"\x41" else body[:1]
    return bool(opcode) and 0x50 <= opcode[0] <= 0x57


def _is_nop(body: bytes) -> bool:
    return body.lstrip(b"\x66")[:1] == b"\x90"


def _is_conditional_jump(body: bytes) -> bool:
    if body[:1] == b"\x0f":
        return len(body) > 1 and 0x80 <= body[1] <= 0x8F
    return bool(body) and 0x70 <= body[0] <= 0x7F


def _is_branch(opcode: bytes) -> bool:
    return opcode[:1] in (b"\xeb", b"\xe9", b"\xe8") or _is_conditional_jump(opcode)


_EMULATED_X86: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("push", _is_push),
    ("nop", _is_nop),
    ("long nop (where the kernel knows it)", lambda body: body.startswith(LONG_NOPS)),
    ("branch", lambda body: _is_branch(body.removeprefix(b"\xf2"))),  # f2 is bnd
)


def _site_arm64(code: bytes) -> Site:
    """Untested on hardware. `bti` may be skipped; `paciasp` may not, it signs the return address."""
    words = [int.from_bytes(code[at : at + 4], "little") for at in range(0, len(code) - 3, 4)]
    offset = 4 if len(words) > 1 and words[0] in ARM64_BTI else 0
    word = words[offset // 4] if words else 0
    if words and _simulated_arm64(word):
        return Site(offset, True, f"{word:08x}: simulated (arm64, untested)")
    # bti itself is stepped like any other instruction, so skipping it would win nothing
    return Site(0, False, f"costly: kernel must single-step {code[:4].hex()} (arm64, untested)")


def _simulated_arm64(word: int) -> bool:
    branch = word & 0x7C000000 == 0x14000000  # b, bl
    conditional = word & 0xFF000010 == 0x54000000 or word & 0x7C000000 == 0x34000000  # b.cond, cbz, tbz
    address = word & 0x1F000000 == 0x10000000  # adr, adrp
    literal = word & 0xBF000000 == 0x18000000 or word & 0xFF000000 == 0x98000000  # ldr, ldrsw from pc
    return word == ARM64_NOP or branch or conditional or address or literal
