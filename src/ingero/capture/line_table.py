"""The source line of an instruction, from a code object's line table.

Three formats: up to 3.9 pairs of (bytes, lines) forward; 3.10 the same as ranges, with
ranges that have no line; from 3.11 a table of locations. The bytes come from a traced
process: any of them give a line or None, in time linear in their number.
"""

from __future__ import annotations

from collections.abc import Iterator

Ranges = Iterator[tuple[int, int | None]]  # (where the range ends, its line)

CODE_UNIT_BYTES = 2
NO_LINE_DELTA = 0x80  # 3.10: -128
MAX_VARINT_BYTES = 6  # of 6 bits each; lines need no more
MAX_LINE = 1 << 31
AT_BITS = 31  # of a frame's instruction; the sign is the highest of them

# the location table, 3.11 and later: where an entry begins, and kinds of entries
ENTRY = 128
_LONG, _NO_COLUMNS, _NONE = 14, 13, 15
_ONE_LINE = range(10, 13)


def line_at(version: tuple[int, int], table: bytes, first_line: int, at: int) -> int | None:
    """The line of the instruction `at`; None: it has none, or the table does not tell.

    `at` counts bytes from the start of the bytecode, in 3.10 units of two; before the
    first instruction (a call that has not begun) it is the function's own line.
    """
    if at >> (AT_BITS - 1) & 1 or at < 0:
        return first_line
    if version < (3, 11) and len(table) % 2:
        return None
    if version < (3, 10):
        line: int | None = _line_up_to_3_9(table, first_line, at)
    elif version == (3, 10):
        line = _covering(_ranges_3_10(table, first_line), at * CODE_UNIT_BYTES)
    else:
        line = _covering(_ranges(table, first_line), at)
    return line if line is not None and 0 <= line < MAX_LINE else None


def _covering(ranges: Ranges, at: int) -> int | None:
    return next((line for end, line in ranges if at < end), None)


def _line_up_to_3_9(table: bytes, line: int, at: int) -> int:
    address = 0
    for step, lines in zip(table[::2], table[1::2], strict=False):
        address += step
        if address > at:
            break
        line += _signed(lines)
    return line


def _ranges_3_10(table: bytes, line: int) -> Ranges:
    end = 0
    for step, lines in zip(table[::2], table[1::2], strict=False):
        end += step
        if lines == NO_LINE_DELTA:
            yield end, None
        else:
            line += _signed(lines)
            yield end, line


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _ranges(table: bytes, line: int) -> Ranges:
    """An entry begins with a byte whose highest bit is set, and with none of the others."""
    end, index = 0, 0
    while index < len(table):
        head, index = table[index], index + 1
        kind = head >> 3 & 15
        end += ((head & 7) + 1) * CODE_UNIT_BYTES
        delta = _delta(table, index, kind)
        if head < ENTRY or delta is None:
            return
        line += delta
        yield end, None if kind == _NONE else line
        while index < len(table) and table[index] < ENTRY:
            index += 1


def _delta(table: bytes, index: int, kind: int) -> int | None:
    """By how many lines an entry goes on; None: it is cut short."""
    if kind in _ONE_LINE:
        return kind - _ONE_LINE.start
    if kind not in (_NO_COLUMNS, _LONG):
        return 0
    value = 0
    for count, byte in enumerate(table[index : index + MAX_VARINT_BYTES]):
        value |= (byte & 63) << 6 * count
        if byte < 64:
            return -(value >> 1) if value & 1 else value >> 1
        if byte >= ENTRY:
            break
    return None
