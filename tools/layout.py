"""Write src/ingero/model/layout.py from the BTF of the compiled probes.

Usage: layout.py [--check] OBJECT. Types and numbers of probes/wire.h become NumPy
dtypes and Python enums; with --check it only says whether the file is current.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ingero.native import _shim

TARGET = Path(__file__).parent.parent / "src/ingero/model/layout.py"
HEAD = '''"""Layouts and numbers shared with probes/wire.h. Written by `make layout`; do not edit."""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np
'''
INT, ARRAY, STRUCT, ENUM, TYPEDEF, VOLATILE, CONST = 1, 3, 4, 6, 8, 9, 10
SIGNED = 1

Member = tuple[str, int, int]
Type = tuple[int, str, int, list[Member]]


class Types:
    def __init__(self, path: str) -> None:
        self.types: list[Type] = _shim.btf_types(path)

    def get(self, number: int) -> Type:
        """The type behind its typedefs (whose size field is the type they name)."""
        kind = self.types[number - 1]
        while kind[0] in (TYPEDEF, VOLATILE, CONST):
            kind = self.types[kind[2] - 1]
        return kind

    def named(self, kind: int) -> list[Type]:
        return [t for t in self.types if t[0] == kind and t[1] and t[1] != "wire"]

    def in_order(self) -> list[Type]:
        """Structures, each after those it contains."""
        done: list[Type] = []

        def visit(struct: Type) -> None:
            if struct in done:
                return
            for _, number, _ in struct[3]:
                inner = self.get(number)
                while inner[0] == ARRAY:
                    inner = self.get(inner[3][0][1])
                if inner[0] == STRUCT:
                    visit(inner)
            done.append(struct)

        for struct in self.named(STRUCT):
            visit(struct)
        return done

    def format(self, number: int) -> str:
        kind, name, size, members = self.get(number)
        if kind == STRUCT:
            return name.upper()
        if kind == ENUM:
            return '"<u4"'
        if kind == INT:
            return f'"<{"i" if members[0][2] & SIGNED else "u"}{size}"'
        assert kind == ARRAY, f"no dtype for {name} (kind {kind})"
        element, count = members[0][1], members[0][2]
        if self.get(element)[1] == "char":
            return f'"S{count}"'
        return f"({self.format(element)}, ({count},))"


def enum_text(name: str, members: list[Member]) -> str:
    flags = name.endswith("_flag") or name == "why"
    title = "".join(part.title() for part in name.split("_"))
    lines = [f"class {title}({'IntFlag' if flags else 'IntEnum'}):"]
    return "\n".join(lines + [f"    {member} = {value}" for member, _, value in members])


def struct_text(types: Types, struct: Type) -> str:
    _, name, size, members = struct
    fields = ",\n".join(
        f'            ("{member}", {types.format(number)}, {bits // 8})' for member, number, bits in members
    )
    return f"{name.upper()} = _dtype(\n    {size},\n    [\n{fields},\n    ],\n)".replace(
        "            (", "        ("
    )


DTYPE = """def _dtype(size: int, fields: list[tuple[str, object, int]]) -> np.dtype[np.void]:
    names, formats, offsets = zip(*fields, strict=True)
    return np.dtype(
        {"names": list(names), "formats": list(formats), "offsets": list(offsets), "itemsize": size}
    )"""


def layout_text(path: str) -> str:
    types = Types(path)
    enums = [enum_text(name, members) for _, name, _, members in types.named(ENUM)]
    structs = [struct_text(types, struct) for struct in types.in_order()]
    return HEAD + "\n\n" + "\n\n\n".join([*enums, DTYPE]) + "\n\n\n" + "\n\n".join(structs) + "\n"


def main() -> int:
    check = "--check" in sys.argv
    text = layout_text(next(a for a in sys.argv[1:] if not a.startswith("-")))
    if check:
        same = TARGET.read_text() == text
        print("layout.py is current" if same else "layout.py is stale: run `make layout`")
        return 0 if same else 1
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
