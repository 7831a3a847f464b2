"""CUDA status codes: which are answers, which are faults, and what they mean.

Numbers are those of cudaError_t and CUresult, which agree from 100 on.
"""

from __future__ import annotations

# Answers that programs ask for, or that libraries provoke on purpose while probing.
# 4 and 709 come when a program ends and its libraries clean up after the driver has gone.
ANSWERS = frozenset({600, 704, 705, 712, 713, 801, 100, 36, 4, 709})
NOT_FOUND = 500  # an answer to those who ask whether something is there
OUT_OF_MEMORY = 2
MISMATCH = frozenset({35, 209, 222, 223, 803, 804})
# After one of these the context is lost: every later call fails.
FATAL = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 214, 220, 721})

NAMES = {
    1: "invalid value",
    2: "out of memory",
    3: "not initialised",
    9: "invalid launch configuration",
    35: "driver older than the runtime",
    98: "invalid device function",
    201: "invalid context",
    209: "no code for this GPU",
    214: "uncorrectable ECC error",
    222: "PTX newer than the driver",
    223: "JIT compiler not found",
    400: "invalid handle",
    700: "illegal memory access",
    702: "kernel timed out",
    710: "device-side assert",
    715: "illegal instruction",
    716: "misaligned address",
    719: "kernel failed",
    801: "not supported",
    803: "driver and library disagree",
    804: "compatibility mode not supported here",
    900: "not permitted while capturing",
    901: "capture invalidated",
}
CAPTURE = frozenset(range(900, 911))


def name_of(code: int) -> str:
    return NAMES.get(code, f"error {code}")
