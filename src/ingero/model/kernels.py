"""What a kernel is called: in full, and short enough to show in a table."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
