"""Prints, as JSON, every code object of some source with its line table and each instruction's line.

Run by the interpreters whose tables are tested, 3.9 and later, so it keeps to what they all have.
"""

import dis
import json
import sys
from pathlib import Path
from types import CodeType


def codes(code):
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


def lines(code):
    """The line of each byte of the bytecode, as the interpreter itself has it."""
    size = len(code.co_code)
    found: list[int | None] = [None] * size
    if hasattr(code, "co_lines"):
        for start, end, line in code.co_lines():
            found[start:end] = [line] * (min(end, size) - start)
        return found
    for start, line in dis.findlinestarts(code):
        found[start:] = [line] * (size - start)
    return found


def described(code):
    table = code.co_linetable if hasattr(code, "co_linetable") else code.co_lnotab
    return {
        "name": code.co_name,
        "first_line": code.co_firstlineno,
        "table": table.hex(),
        "lines": lines(code)[::2],
    }


def source():
    """Standard input, or the named module of this interpreter's own library."""
    if len(sys.argv) < 2:
        return sys.stdin.read()
    return Path(__import__(sys.argv[1]).__file__).read_text(encoding="utf-8")


if __name__ == "__main__":
    found = [described(each) for each in codes(compile(source(), "<source>", "exec"))]
    print(json.dumps({"version": sys.version_info[:2], "codes": found}))
