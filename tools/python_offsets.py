"""Write src/ingero/discover/python_offsets.py from the headers of CPython.

Usage: python_offsets.py [INCLUDE ...], folders that hold Python.h; without any, those of
the pyenv versions. Of 3.13 and later the free-threaded layout is taken from the same
headers. What other versions the table knows already stays, so headers of one version
are enough to renew that version. Nothing of this is trusted at run time: every offset is
checked against the process it is used on.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).with_suffix(".c")
TARGET = Path(__file__).parent.parent / "src/ingero/discover/python_offsets.py"
HEAD = '''"""Where the fields of CPython's structures lie. Written by `tools/python_offsets.py`; do not edit.

OFFSETS: by minor version and whether it is free-threaded. STATED: where in the runtime's
own table of offsets (3.13 and later) the same ones stand, which then hold.
"""

from __future__ import annotations

'''
FIRST, FIRST_FREE_THREADED = 9, 13

Table = dict[tuple[int, bool], dict[str, int]]
Stated = dict[int, dict[str, int]]


def default_folders() -> list[Path]:
    versions = Path("~/.pyenv/versions").expanduser()
    found = sorted(versions.glob("3.*/include/python3.*"))
    return [each for each in found if int(each.name.partition(".")[2].rstrip("mt")) >= FIRST]


def measured(include: Path, *flags: str) -> list[list[str]]:
    """The program's lines for one set of headers."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "offsets"
        # distributions keep pyconfig.h one folder up, by architecture
        folders = [f"-I{each}" for each in (include, include / "internal", include.parent)]
        subprocess.run(["cc", "-w", *folders, *flags, "-o", program, PROGRAM], check=True)
        said = subprocess.run([program], check=True, capture_output=True, text=True)
    return [line.split() for line in said.stdout.splitlines()]


def add(include: Path, table: Table, stated: Stated, *flags: str) -> int:
    """Enter one set of headers into the tables; its minor version."""
    lines = measured(include, *flags)
    values = {name: int(value) for name, value in (line for line in lines if len(line) == 2)}
    minor, free_threaded = values.pop("version"), bool(values.pop("free_threaded"))
    table[minor, free_threaded] = values
    positions = {line[1]: int(line[2]) for line in lines if len(line) == 3}
    if positions:
        stated[minor] = positions
    return minor


def known() -> tuple[Table, Stated]:
    """What the file says now."""
    if not TARGET.exists():
        return {}, {}
    spec = importlib.util.spec_from_file_location("python_offsets_now", TARGET)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.OFFSETS), dict(module.STATED)


def text_of(name: str, kind: str, table: Table | Stated) -> str:
    rows = []
    for key, values in sorted(table.items()):
        fields = "".join(f'        "{field}": {value},\n' for field, value in values.items())
        rows.append(f"    {key}: {{\n{fields}    }},\n")
    return f"{name}: {kind} = {{\n{''.join(rows)}}}\n"


def main(folders: list[Path]) -> None:
    table, stated = known()
    for include in folders or default_folders():
        minor = add(include, table, stated)
        if minor >= FIRST_FREE_THREADED:
            add(include, table, stated, "-DPy_GIL_DISABLED=1")
    offsets = text_of("OFFSETS", "dict[tuple[int, bool], dict[str, int]]", table)
    positions = text_of("STATED", "dict[int, dict[str, int]]", stated)
    TARGET.write_text(HEAD + offsets + "\n" + positions)


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
