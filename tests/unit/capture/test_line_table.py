"""Lines from line tables: what every interpreter here says about its own code, and any bytes at all."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingero.capture.code_objects import line_at
from tests.pythons import SUPPORTED

HERE = Path(__file__).parent
NASTY = "nasty_source.txt"
VERSIONS = [(3, minor) for minor in range(9, 15)]


def said_by(python: str, module: str) -> dict[str, Any]:
    command = [python, "-c", (HERE / "lines_of.py").read_text(), *([module] if module != NASTY else [])]
    done = subprocess.run(command, input=(HERE / NASTY).read_bytes(), capture_output=True, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("source", [NASTY, "dis"])
@pytest.mark.parametrize("python", SUPPORTED)
def test_every_instruction_has_the_line_its_interpreter_gives_it(python: str, source: str) -> None:
    said = said_by(python, source)
    version = (said["version"][0], said["version"][1])
    assert version in VERSIONS
    checked, lineless = 0, 0
    for code in said["codes"]:
        table = bytes.fromhex(code["table"])
        for unit, line in enumerate(code["lines"]):
            at = unit if version == (3, 10) else unit * 2
            assert line_at(version, table, code["first_line"], at) == line, (code["name"], at)
            checked += 1
            lineless += line is None
    assert checked > 300
    assert lineless or version < (3, 10) or source != NASTY


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_that_has_not_begun_is_at_its_first_line(version: tuple[int, int]) -> None:
    for at in (-1, -2, 0x7FFFFFFE, 0x7FFFFFFF):
        assert line_at(version, b"", 12, at) == 12


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_an_instruction_behind_the_table_has_no_line(version: tuple[int, int]) -> None:
    assert line_at(version, b"", 12, 0) is None
    assert line_at(version, b"\x80\x00", 12, 0x3FFFFFFF) is None


@pytest.mark.parametrize(
    "table", [b"\xef", b"\xef\xef\x04", b"\xef\x44", b"\xf7\x40\x40\x40\x40\x40\x40\x01", b"\x6f\x04"]
)
@pytest.mark.parametrize("version", VERSIONS[2:])
def test_an_entry_cut_short_has_no_line(version: tuple[int, int], table: bytes) -> None:
    """Its line would be the one before, or the function's own."""
    assert line_at(version, table, 12, 0) is None
    assert line_at(version, b"\xe8\x04" + table, 12, 0) == 14
    assert line_at(version, b"\xe8\x04" + table, 12, 2) is None


@pytest.mark.parametrize("version", VERSIONS[:2])
def test_half_a_pair_is_no_table(version: tuple[int, int]) -> None:
    assert line_at(version, b"\x02\x03\x02", 12, 0) is None


@given(
    st.sampled_from(VERSIONS),
    st.binary(max_size=4096),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-4, 2**32 - 1),
)
def test_any_bytes_give_a_line_or_none(
    version: tuple[int, int], table: bytes, first_line: int, at: int
) -> None:
    line = line_at(version, table, first_line, at)
    assert line is None or isinstance(line, int)


@pytest.mark.parametrize("byte", [0x00, 0x40, 0x7F, 0x80, 0xEF, 0xF7, 0xFF])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_large_table_of_one_byte_is_gone_through_once(version: tuple[int, int], byte: int) -> None:
    line = line_at(version, bytes([0xEF]) + bytes([byte]) * (1 << 17), 1, 0x3FFFFFFF)
    assert line is None or line >= 0
