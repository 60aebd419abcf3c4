"""Property tests: edits that keep the meaning keep the behaviour, wherever they are made."""

from __future__ import annotations

import itertools

import pytest
from bytecode_meaning import function, meaning
from flambeau_capture.bytecode import AssembleError, CodeBody, Region, assemble, blocks, decode
from flambeau_capture.bytecode import spelling as s
from flambeau_capture.bytecode.flow import covering, keep, remove_dead_code
from flambeau_capture.bytecode.opcodes import RUNNING, TERMINATORS
from hypothesis import given, settings
from hypothesis import strategies as st


def branches(n):
    if (n > 3 and n % 2) or n < -3:
        return "far odd"
    return "none" if n is None else ("even" if n % 2 == 0 else "odd")


def loops(n):
    out = []
    for i in range(n):
        if i == 5:
            continue
        for j in range(i):
            if j * i > 12:
                break
            out.append((i, j))
        else:
            out.append(i)
    while n:
        n -= 1
        if n == 1:
            break
    else:
        out.append("done")
    return out


def handlers(n):
    log = []
    for i in range(n):
        try:
            try:
                if i % 3 == 0:
                    raise KeyError(i)
                if i % 3 == 1:
                    continue
                log.append(1 / (i - 2))
            except KeyError as error:
                log.append(error.args[0])
                if i == 6:
                    break
            finally:
                log.append("finally")
        except ZeroDivisionError:
            log.append("zero")
    return log


class Managed:
    def __init__(self, log, swallow):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, kind, value, tb):
        self.log.append(kind.__name__ if kind else "out")
        return self.swallow


def withs(n):
    log = []
    for i in range(n):
        with Managed(log, True), Managed(log, False) as m:
            if i == 2:
                continue
            if i == 3:
                raise ValueError
            log.append(len(m.log))
    return log


def closures(n):
    def inner(k):
        nonlocal n
        n += k
        return [lambda: n + x for x in range(k)]  # noqa: B023 - a cell of the loop

    return [f() for f in inner(2)], n, {k: v + n for k, v in zip("ab", range(n))}


def comprehensions(n):
    x = n
    rows = [[x * y for y in range(x) if y % 2] for x in range(n) if x]
    return rows, x, {x + 1 for x in range(n)}, sum(x for x in range(n))


def calls(n, *args, flag=False, **kwargs):
    def target(*a, **k):
        return a, sorted(k.items())

    return target(n, *args, x=n, **kwargs), target(1, y=2), f"{n!r:>4}|{flag}", n[:1] if args else 0


def matching(n):
    match [n, {"k": n}]:
        case [0, _]:
            return "zero"
        case [int(v), {"k": k}] if v > 4:
            return v, k
        case _:
            return "other"


CASES = [(branches, v) for v in (-9, -1, 0, 2, 3, 5)]
CASES += [(f, v) for f in (loops, handlers, withs, comprehensions) for v in (0, 1, 4, 9)]
CASES += [(closures, 3), (calls, 2), (matching, 0), (matching, 3), (matching, 8)]
FUNCTIONS = list(dict.fromkeys(f for f, _ in CASES))
BRANCHING = [f for f in FUNCTIONS if len(blocks(decode(f.__code__))) > 2]


def agrees(made, original):
    for argument in (v for f, v in CASES if f is original):
        assert made(argument) == original(argument)


def gaps(body: CodeBody) -> list[int]:
    """Where an instruction may be put between two that need not be neighbours."""
    fixed = {i + 1 for i, one in enumerate(body.instructions) if one.opname in RUNNING.followers}
    return [i for i in range(1, len(body.instructions)) if i not in fixed]


@pytest.mark.parametrize("original", FUNCTIONS, ids=lambda f: f.__name__)
def test_round_trip_runs(original):
    made = function(assemble(decode(original.__code__)), original)
    agrees(made, original)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_insertions_and_removals(data):
    original = data.draw(st.sampled_from(FUNCTIONS))
    body = decode(original.__code__)
    before = meaning(body)
    kept = list(body.instructions)
    places = data.draw(st.lists(st.sampled_from(gaps(body)), max_size=12))
    size = data.draw(st.sampled_from([1, 3, 300]))
    for place in sorted(places, reverse=True):
        body.instructions[place:place] = [
            i for n in range(size) for i in (*s.nop(), *s.load_const(n), *s.pop_top())
        ]
    code = assemble(body)
    agrees(function(code, original), original)
    again = decode(code)
    assert len(again.instructions) == len(kept) + 3 * size * len(places)
    assert meaning(keep(body, kept)) == before
    assert assemble(keep(body, kept)).co_code == assemble(decode(original.__code__)).co_code


def shuffled(original, order: list[int]) -> CodeBody:
    """The function with its blocks in another order, joined by jumps."""
    body = decode(original.__code__)
    regions = covering(body)
    parts = [list(block.instructions) for block in blocks(body)]
    for part, following in itertools.pairwise([*parts, None]):
        if part[-1].opname not in TERMINATORS:
            part.extend(s.jump(following[0]))
    body.instructions = [i for index in order for i in parts[index]]
    body.regions = []
    for part in parts:
        caught = [i for i in part if i in regions]
        if caught:
            region = regions[caught[0]]
            body.regions.append(
                Region(caught[0], caught[-1], region.handler, region.depth, region.lasti)
            )
    return body


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_blocks_in_any_order(data):
    """Backward conditional jumps, handlers before their bodies: the same answers, or a refusal."""
    original = data.draw(st.sampled_from(BRANCHING))
    order = list(range(1, len(blocks(decode(original.__code__)))))
    if data.draw(st.booleans()):
        order = data.draw(st.permutations(order))
    else:  # one block moved: fewer refusals
        moved = order.pop(data.draw(st.integers(0, len(order) - 1)))
        order.insert(data.draw(st.integers(0, len(order))), moved)
    order = [0, *order]
    body = shuffled(original, order)
    try:
        code = assemble(body)
    except AssembleError as refused:
        assert "backward FOR_ITER" in str(refused) or "must be followed" in str(refused)
        return
    agrees(function(code, original), original)


@pytest.mark.parametrize("original", [branches, matching], ids=lambda f: f.__name__)
def test_blocks_backwards(original):
    """No loop: reversing every block makes each conditional jump a backward one."""
    count = len(blocks(decode(original.__code__)))
    body = shuffled(original, [0, *range(count - 1, 0, -1)])
    agrees(function(assemble(body), original), original)


@pytest.mark.parametrize("original", FUNCTIONS, ids=lambda f: f.__name__)
def test_dead_code_is_removed_and_nothing_else(original):
    body = decode(original.__code__)
    before = meaning(body)
    dead = [*s.load_const("never"), *s.return_value()]
    after_a_return = next(i for i, one in enumerate(body.instructions) if one.opname in TERMINATORS)
    body.instructions[after_a_return + 1 : after_a_return + 1] = dead
    cleaned = remove_dead_code(body)
    assert not set(dead) & set(cleaned.instructions)
    assert meaning(cleaned) == before
    agrees(function(assemble(cleaned), original), original)
