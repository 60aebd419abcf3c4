# ruff: noqa: B007, C417 - loops that are left, and what they go over, are the subject
"""A generator that a loop leaves ends where CPython ends it: `finally` runs before what comes."""

import pytest
import torch


def items(x, log):
    log.append("start")
    try:
        for number in range(3):
            yield x + number
    finally:
        log.append("end")


def left(x, log):
    for t in items(x, log):
        break
    log.append("after")
    return t


def behind_enumerate(x, log):
    for number, t in enumerate(items(x, log)):
        if number == 1:
            break
    log.append("after")
    return t


def behind_zip(x, log):
    for a, b in zip(items(x, log), items(x, log)):
        break
    log.append("after")
    return a + b


def behind_map(x, log):
    for t in map(lambda v: v * 2, items(x, log)):
        break
    log.append("after")
    return t


def kept_in_a_variable(x, log):
    waiting = items(x, log)
    for t in waiting:
        break
    log.append("after")
    u = next(waiting)
    log.append("more")
    return t + u


def in_an_inner_function(x, log):
    def first():
        for t in items(x, log):
            return t

    found = first()
    log.append("after")
    return found


def by_an_exception(x, log):
    try:
        for _ in items(x, log):
            raise ValueError
    except ValueError:
        log.append("caught")
    log.append("after")
    return x + 1


def given_and_kept(x, log):
    def first(waiting):
        for t in waiting:
            return t

    waiting = items(x, log)
    found = first(waiting)
    log.append("after")
    return found + next(waiting)


def given_away(x, log):
    def first(waiting):
        for t in waiting:
            return t

    found = first(items(x, log))
    log.append("after")
    return found


def one_in_another(x, log):
    for a in items(x, log):
        for b in items(a, log):
            if b.shape[0] == 2:
                break
        log.append("in")
        break
    log.append("after")
    return b


def before_a_break(x, log):
    for t in items(x, log):
        break
    print("", end="")
    log.append("after")
    return t


def one_item(x, log):
    t = next(items(x, log))
    log.append("after")
    return t


def under_any(x, log):
    found = any(t.shape[0] == 2 for t in items(x, log))
    log.append("after")
    return x * found


PROGRAMS = [
    left, behind_enumerate, behind_zip, behind_map, kept_in_a_variable, in_an_inner_function,
    by_an_exception, given_and_kept, given_away, one_in_another, before_a_break, one_item,
    under_any,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_ends_where_python_ends_it(check, program):
    check(program, torch.ones(2), [], graphs=None)


def stopping(first):
    if first:
        raise StopIteration(3)
    yield 1
    raise StopIteration


USES = {
    "next": lambda g: next(g),
    "list": lambda g: list(g),
    "in": lambda g: 7 in g,
    "loop": lambda g: [(item, 1) for item in g],
    "send": lambda g: g.send(None),
    "star": lambda g: (*g,),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("use", USES)
def test_a_stop_iteration_that_leaves_the_body_is_a_runtime_error(check, use, first):
    used = USES[use]

    def fn(t):
        try:
            try:
                raise KeyError(1)
            except KeyError:
                told = used(stopping(first))
        except Exception as error:
            told = type(error).__name__, str(error), repr(error.__cause__), repr(error.__context__)
        return t + 1, told

    check(fn, torch.ones(2), graphs=None)
