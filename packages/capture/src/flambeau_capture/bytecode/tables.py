"""Encoders of a code object's side tables: exceptions and positions.

In: rows in code units (2 bytes) and instruction sizes with their positions. Out: the bytes of
co_exceptiontable and co_linetable. Invariant: rows of the exception table are sorted and disjoint,
since CPython searches it by halving.
Source: Objects/exception_handling_notes.txt and Objects/locations.md of CPython.
"""

from __future__ import annotations

from collections.abc import Iterable

from flambeau_capture.bytecode.instruction import SourcePositions

_NO_COLUMNS, _LONG, _NONE = 13, 14, 15
_UNITS_PER_ENTRY = 8


def exception_table(rows: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """Rows (start, end, handler, depth, lasti), the first three in code units, end exclusive."""
    out = bytearray()
    floor = 0
    for start, end, handler, depth, lasti in rows:
        if not floor <= start < end:
            raise ValueError(f"exception table rows overlap or are empty at unit {start}")
        floor = end
        _big_endian(out, start, first=True)
        _big_endian(out, end - start)
        _big_endian(out, handler)
        _big_endian(out, depth << 1 | int(lasti))
    return bytes(out)


def line_table(entries: Iterable[tuple[int, SourcePositions]], first_line: int) -> bytes:
    """Entries (code units, position); neighbours of one position are written as one run."""
    out = bytearray()
    line = first_line
    for units, positions in _runs(entries):
        while units > 0:
            taken = min(units, _UNITS_PER_ENTRY)
            line = _location(out, taken, positions, line)
            units -= taken
    return bytes(out)


def _runs(entries: Iterable[tuple[int, SourcePositions]]) -> list[tuple[int, SourcePositions]]:
    runs: list[tuple[int, SourcePositions]] = []
    for units, positions in entries:
        if runs and runs[-1][1] == positions:
            runs[-1] = (runs[-1][0] + units, positions)
        else:
            runs.append((units, positions))
    return runs


def _location(out: bytearray, units: int, positions: SourcePositions, line: int) -> int:
    """Append one entry; answer the line that the next one counts from."""
    lineno, end_lineno, column, end_column = positions
    if lineno is None:
        out.append(_head(_NONE, units))
        return line
    delta = lineno - line
    if column is None or end_column is None:
        if end_lineno is None or end_lineno == lineno:
            out.append(_head(_NO_COLUMNS, units))
            _signed(out, delta)
            return lineno
        column = end_column = -1
    if end_lineno is None:
        end_lineno = lineno
    one_line = end_lineno == lineno and column >= 0
    if one_line and delta == 0 and column < 80 and 0 <= end_column - column < 16:
        out.append(_head(column >> 3, units))
        out.append((column & 7) << 4 | end_column - column)
    elif one_line and 0 <= delta <= 2 and column < 128 and 0 <= end_column < 128:
        out.append(_head(10 + delta, units))
        out.extend((column, end_column))
    else:
        out.append(_head(_LONG, units))
        _signed(out, delta)
        _little_endian(out, end_lineno - lineno)
        _little_endian(out, column + 1)
        _little_endian(out, end_column + 1)
    return lineno


def _head(code: int, units: int) -> int:
    return 128 | code << 3 | units - 1


def _little_endian(out: bytearray, value: int) -> None:
    """Groups of 6 bits, the lowest first; bit 6 says that more follow."""
    if value < 0:
        raise ValueError(f"a position cannot end before it starts: {value}")
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)


def _signed(out: bytearray, value: int) -> None:
    _little_endian(out, -value << 1 | 1 if value < 0 else value << 1)


def _big_endian(out: bytearray, value: int, *, first: bool = False) -> None:
    """Groups of 6 bits, the highest first; bit 7 marks the first byte of a row."""
    groups = [value & 63]
    while value := value >> 6:
        groups.append(64 | value & 63)
    groups.reverse()
    groups[0] |= 128 if first else 0
    out.extend(groups)
