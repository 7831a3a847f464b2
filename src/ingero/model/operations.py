"""What operations and kernels are called, and where an operation belongs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

# The name of an operation and where it belongs.
#
# The number is what travels in records; the table that assigns numbers is
# attach/probes.py. Source numbers are the ones users write in SQL.


class Source(IntEnum):
    """The `source` column of the `events` view."""

    RUNTIME = 1
    HOST = 3
    DRIVER = 4
    BLOCK_IO = 5
    TCP = 6
    SOCKET = 7
    GRAPH = 8
    NCCL = 9


LAYER_SOURCE = {
    "runtime": Source.RUNTIME,
    "driver": Source.DRIVER,
    "graph": Source.GRAPH,
    "nccl": Source.NCCL,
    "python": Source.HOST,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One traced function."""

    number: int
    name: str
    layer: str  # runtime, driver, graph, nccl, python
    # launch, copy, set, alloc, free, sync, module, context, graph, collective, comm, group, gc, other
    kind: str
    direction: str | None = None  # copies whose name says it: HtoD, DtoH, DtoD, HtoH
    kind_arg: int | None = None  # argument that holds the cudaMemcpyKind
    bytes_known: bool = False
    peer_arg: int | None = None
    reduce_arg: int | None = None
    dtype_arg: int | None = None
    kernel_arg: int | None = None  # launches: a host function at the runtime, a handle at the driver
    arity: int = 2  # arguments it takes, as far as two are shown

    @property
    def source(self) -> Source:
        return LAYER_SOURCE[self.layer]


# What a kernel is called: in full, and short enough to show in a table.


ANONYMOUS = "(anonymous namespace)"
PAIRS = {">": "<", ")": "(", "]": "[", "}": "{"}
# Brackets that belong to a name: operator<, operator(), operator-> and the like.
_OPERATOR = re.compile(r"operator\s*(?:\(\)|\[\]|->\*?|<=>|<<=?|>>=?|[<>]=?)")
_COMPARISON = re.compile(r" (?:<<|>>|[<>]=?) ")


@dataclass(frozen=True, slots=True)
class KernelName:
    """A name, or the place of something that has none (`libx.so+0x1f40`)."""

    text: str
    known: bool = True

    @property
    def short(self) -> str:
        return short_name(self.text) if self.known else self.text


@dataclass(frozen=True, slots=True)
class LearntKernel:
    """A handle whose name became known after launches with it were recorded without."""

    pid: int
    handle: int
    name: KernelName


def short_name(text: str) -> str:
    """The function's qualified name without result, template arguments and parameters.

    `void at::native::fill<4, float>(int, float*)` is `at::native::fill`.
    """
    kept, open_brackets, at = "", "", 0
    while at < len(text):
        part = _part(text, at, open_brackets)
        if part == "(" and not open_brackets and kept and not kept.endswith("::"):
            break  # the parameters; qualifiers follow
        if part in PAIRS:
            open_brackets = open_brackets[: max(open_brackets.rfind(PAIRS[part]), 0)]
        elif part in PAIRS.values():
            open_brackets += part
        elif not open_brackets:
            kept += part
        at += len(part)
    return _without_result(kept.strip()) or text


def _part(text: str, at: int, open_brackets: str) -> str:
    """What comes next: a character, or several in which brackets mean nothing."""
    if text.startswith(ANONYMOUS, at):
        return ANONYMOUS
    pattern = _COMPARISON if open_brackets.endswith("(") else _OPERATOR
    found = pattern.match(text, at)
    return found[0] if found else text[at]


def _without_result(name: str) -> str:
    """What follows the last space is the name, save in `operator bool` and the like."""
    plain = name.replace(ANONYMOUS, ANONYMOUS.replace(" ", "\0"))
    operator = plain.find("operator ")
    start = plain.rfind(" ", 0, operator if operator >= 0 else None) + 1
    return plain[start:].replace("\0", " ").lstrip("*&")
