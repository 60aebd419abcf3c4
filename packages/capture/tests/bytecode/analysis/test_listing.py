"""Listings read the same on every Python; diffs show edits and nothing else."""

import textwrap

from flambeau_capture.bytecode import assemble, decode, diff, listing
from flambeau_capture.bytecode import spelling as s
from flambeau_capture.bytecode.listing import constant_text

SOURCE = """
def toy(a, b):
    x = a
    if b < 0:
        b = b * -1
    return x * b
"""


def toy():
    scope: dict = {}
    exec(SOURCE, scope)
    return scope["toy"]


def rows(text):
    """(line, mark, opname, rest) of each row of a listing."""
    out = []
    for row in text.splitlines():
        line, mark, operation = row[:4].strip(), row[4:8].strip(), row[15:].split(None, 1)
        out.append((line, mark, operation[0], operation[1].strip() if operation[1:] else ""))
    return out


def test_the_columns():
    code = toy().__code__
    shown = rows(listing(code))
    assert [r[0] for r in shown if r[0]] == ["2", "3", "4", "5", "6"]
    assert [r[2] for r in shown] == [i.opname for i in decode(code).instructions]
    assert ("3", "", "LOAD_FAST", "0 (a)") in shown
    assert any(r[2] == "BINARY_OP" and r[3] == "(*)" for r in shown)
    assert any(r[2] == "LOAD_CONST" and r[3].endswith("(-1)") for r in shown)
    jump = next(r for r in shown if r[2] == "POP_JUMP_IF_FALSE")
    marked = [row for row in listing(code).splitlines() if ">>" in row]
    assert len(marked) == 1
    assert f"(to {marked[0].split()[2]})" == jump[3]


def test_a_diff_shows_the_edit_alone():
    code = toy().__code__
    body = decode(code)
    body.instructions[1:1] = [*s.load_const("added"), *s.pop_top()]
    text = diff(code, assemble(body))
    changed = [row for row in text.splitlines() if row[0] in "+-" and row[:3] not in ("+++", "---")]
    assert len(changed) == 2
    assert "LOAD_CONST" in changed[0] and "('added')" in changed[0]
    assert "POP_TOP" in changed[1]
    assert diff(code, toy().__code__) == ""


def test_an_edited_body_shows_what_is_new():
    body = decode(toy().__code__)
    body.instructions[1:1] = s.nop()
    assert "+1 NOP" in listing(body)


def test_exception_regions_are_listed():
    def f():
        try:
            return 1 / 0
        except ZeroDivisionError:
            return 0

    text = listing(f.__code__)
    assert "exceptions:" in text
    assert any(" -> " in row and row.endswith("[1] lasti") for row in text.splitlines())


def test_constants_have_no_addresses():
    assert constant_text(toy().__code__) == "code toy, line 2"
    assert constant_text((1, "a", None)) == "(1, 'a', None)"
    assert constant_text((1,)) == "(1,)"
    assert constant_text(frozenset({"b", "a"})) == "frozenset({'a', 'b'})"
    assert constant_text(...) == "Ellipsis"
    assert constant_text(object()) == "object object"
    assert constant_text(textwrap.dedent) == "dedent"
    assert len(constant_text("x" * 500)) == 60
