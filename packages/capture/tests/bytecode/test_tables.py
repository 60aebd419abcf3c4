"""The side tables, written and read back over their whole range."""

from flambeau_capture.bytecode import SourcePositions
from flambeau_capture.bytecode.assemble import exception_table, line_table
from flambeau_capture.bytecode.decode import exception_rows
from hypothesis import given
from hypothesis import strategies as st

LINES = st.integers(1, 5000)
COLUMNS = st.one_of(st.integers(0, 20), st.integers(70, 140), st.integers(0, 5000))


@st.composite
def positions(draw):
    form = draw(st.sampled_from(["none", "line", "full", "lines"]))
    line = draw(LINES)
    if form == "none":
        return SourcePositions()
    if form == "line":
        return SourcePositions(line, line)
    end = line if form == "full" else line + draw(st.integers(0, 400))
    return SourcePositions(line, end, draw(COLUMNS), draw(COLUMNS))


@given(st.lists(st.tuples(st.integers(1, 30), positions()), min_size=1, max_size=20), LINES)
def test_positions_are_read_back_by_python(entries, first_line):
    table = line_table(entries, first_line)
    units = sum(count for count, _ in entries)
    code = (lambda: None).__code__.replace(
        co_code=b"\x09\x00" * units, co_linetable=table, co_firstlineno=first_line
    )
    expected = [place for count, place in entries for _ in range(count)]
    assert [SourcePositions(*p) for p in code.co_positions()] == expected


@given(
    st.lists(
        st.tuples(
            st.integers(0, 500),
            st.integers(1, 70_000),
            st.integers(0, 500_000),
            st.integers(0, 300),
            st.booleans(),
        ),
        max_size=20,
    )
)
def test_exception_rows_are_read_back(steps):
    rows, at = [], 0
    for gap, length, handler, depth, lasti in steps:
        rows.append((at + gap, at + gap + length, handler, depth, lasti))
        at += gap + length
    doubled = [(2 * a, 2 * b, 2 * c, d, e) for a, b, c, d, e in rows]
    assert list(exception_rows(exception_table(rows))) == doubled
