"""Continue a function from any of its statements: liveness, edits and assembly together.

A traced run gives the variables at each instruction that is reached with an empty stack; a new
function takes those that are live there and jumps to the instruction. It must end as the run did.
"""

from __future__ import annotations

import sys

import pytest
from bytecode_meaning import function
from flambeau_capture.bytecode import assemble, decode, depths, live_locals
from flambeau_capture.bytecode import spelling as s


def branching(n):
    a, b = n, 1
    if a > 2:
        b = a * 2
    else:
        c = b + 5
        b = c * a
    return a - b


def looping(n):
    total, seen = 0, 0
    while n > 0:
        if n % 3 == 0:
            n -= 2
            continue
        seen += 1
        total += n * seen
        n -= 1
        if total > 40:
            break
    else:
        total = -total
    return total, seen


def handling(n):
    state = 1
    while n < 6:
        try:
            state = state * 10 // (n - 2)
            n += 1
        except ZeroDivisionError:
            state += 100
            n += 2
        finally:
            state -= 1
    try:
        return state, [state * k for k in range(3)]
    finally:
        state = None


def closing(n):
    count = n
    n = n * 2

    def step(by):
        return count + by

    total = 0
    while n > 0:
        total += step(n)
        n -= 1
    return total, count, [step(k) for k in range(2)]


def deleting(n):
    kept = n + 1
    del n
    if kept > 3:
        n = kept
        return n
    spare = kept
    return spare


def grouping(n):
    said = (n,)
    try:
        try:
            if n > 1:
                errors = [ValueError(n), KeyError(n), TypeError(n)]
                raise ExceptionGroup("several", errors[: n - 1])
            said = (*said, 1 // n)
        except* ValueError as group:
            said = (*said, len(group.exceptions))
        except* (KeyError, ZeroDivisionError) as group:
            said = (*said, type(group.exceptions[0]).__name__)
        else:
            said = (*said, "none")
        finally:
            said = (*said, "ended")
    except* TypeError:
        said = (*said, "left")
    k = len(said)
    return said, k


def comprehending(n):
    k = [j * i for i in range(n) for j in range(i)]
    i = sum(k)
    try:
        found = {i: [n // (j - 1) for j in range(2, i % 5)] for i in k}
        j = {(i, n) for _ in range(2)}
        found[n] = [1 // (m - n) for m in range(n, n + 1)]
    except ZeroDivisionError:
        found = {n: [i for i in range(n) if i], n + 1: i}
        j = {i}
    return k, i, found, j


def snapshots(original, argument):
    """Offset -> a copy of the variables there, at the first visit; and what the call returned."""
    found = {}

    def trace(frame, event, _):
        if frame.f_code is not original.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            found.setdefault(frame.f_lasti, dict(frame.f_locals))
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # 3.12 looks for one such frame when tracing starts
    sys.settrace(trace)
    try:
        result = original(argument)
    finally:
        sys.settrace(before)
    return found, result


def resumed(original, offset, names):
    """A function of these variables that goes on at the instruction of this offset."""
    body = decode(original.__code__)
    goal = next(i for i in body.instructions if i.offset == offset)
    body.instructions[:0] = [*s.prefix(original.__code__.co_cellvars), *s.jump(goal)]
    varnames = (*names, *(v for v in original.__code__.co_varnames if v not in names))
    code = assemble(body, name=f"resume_at_{offset}", argcount=len(names), varnames=varnames)
    return function(code)


FUNCTIONS = [branching, looping, handling, closing, deleting, grouping, comprehending]


@pytest.mark.parametrize("argument", [0, 1, 3, 4, 7])
@pytest.mark.parametrize("original", FUNCTIONS)
def test_every_statement_can_be_resumed(original, argument):
    found, expected = snapshots(original, argument)
    body = decode(original.__code__)
    depth = depths(body)
    places = {i.offset: i for i in reversed(body.instructions) if depth.get(i) == 0}
    visited = [offset for offset in found if offset in places]
    assert len(visited) >= 4
    for offset in visited:
        variables = found[offset]
        live = live_locals(body, places[offset])
        names = tuple(sorted(live & set(variables)))
        again = resumed(original, offset, names)
        assert again(**{name: variables[name] for name in names}) == expected, (offset, names)


@pytest.mark.parametrize("original", FUNCTIONS)
def test_what_is_not_live_is_not_passed(original):
    body = decode(original.__code__)
    passed = [live_locals(body, i) for i in body.instructions]
    assert any(len(names) < len(original.__code__.co_varnames) for names in passed)
    last = next(i for i in reversed(body.instructions) if i.opname.startswith("RETURN"))
    assert live_locals(body, last) == frozenset()
