# ruff: noqa: B007, F841 - variables that are left, and loops, are the subject
"""A generator that nothing holds any more ends there and then, whatever held it: a variable that is
bound again or deleted, a container, an instance, a closure, an exception with its traceback."""

import collections

import pytest
import torch


def items(x, log, name="end"):
    log.append(f"start {name}")
    try:
        for number in range(3):
            yield x + number
    finally:
        log.append(name)


def in_a_list(x, log):
    def inner(x):
        held = [items(x, log)]
        return next(held[0])

    t = inner(x)
    log.append("after")
    return t


def two_in_a_list(x, log):
    def inner(x):
        held = [items(x, log, "a"), items(x, log, "b")]
        return next(held[0]) + next(held[1])

    t = inner(x)
    log.append("after")
    return t


def in_a_dict(x, log):
    def inner(x):
        held = {"k": items(x, log, "a"), "l": items(x, log, "b")}
        return next(held["k"]) + next(held["l"])

    t = inner(x)
    log.append("after")
    return t


def in_a_tuple(x, log):
    def inner(x):
        held = (items(x, log, "a"), items(x, log, "b"))
        return next(held[1]) + next(held[0])

    t = inner(x)
    log.append("after")
    return t


class Box:
    pass


def in_an_instance(x, log):
    def inner(x):
        b = Box()
        b.g = items(x, log, "a")
        return next(b.g)

    t = inner(x)
    log.append("after")
    return t


def in_a_list_of_the_caller(x, log):
    def inner(x, held):
        held.append(items(x, log, "a"))
        return next(held[0])

    held = []
    t = inner(x, held)
    log.append("after")
    u = next(held[0])
    return t + u


def returned_in_a_list(x, log):
    def inner(x):
        held = [items(x, log, "a")]
        t = next(held[0])
        return t, held

    t, held = inner(x)
    log.append("after")
    u = next(held[0])
    log.append("x")
    return t + u


def list_deleted(x, log):
    held = [items(x, log, "a")]
    t = next(held[0])
    del held
    log.append("after")
    return t


def list_bound_again(x, log):
    held = [items(x, log, "a")]
    t = next(held[0])
    held = None
    log.append("after")
    return t


def list_cleared(x, log):
    held = [items(x, log, "a")]
    t = next(held[0])
    held.clear()
    log.append("after")
    return t


def variable_bound_again(x, log):
    g = items(x, log, "a")
    t = next(g)
    g = None
    log.append("after")
    return t


def variable_deleted(x, log):
    g = items(x, log, "a")
    t = next(g)
    del g
    log.append("after")
    return t


def two_variables(x, log):
    def inner(x):
        b = items(x, log, "b")
        a = items(x, log, "a")
        return next(a) + next(b)

    t = inner(x)
    log.append("after")
    return t


def in_a_closure(x, log):
    def inner(x):
        g = items(x, log, "a")

        def f():
            return next(g)

        return f()

    t = inner(x)
    log.append("after")
    return t


def list_of_three_deleted(x, log):
    held = [items(x, log, str(k)) for k in range(3)]
    ts = [next(h) for h in held]

    def f():
        return sum(ts)

    del held
    log.append("after")
    return f()


def by_an_exception_in_a_callee(x, log):
    def inner(x):
        g = items(x, log, "a")
        next(g)
        raise ValueError

    try:
        inner(x)
    except ValueError:
        log.append("caught")
    log.append("after")
    return x + 1


def by_a_named_exception_in_a_callee(x, log):
    def inner(x):
        g = items(x, log, "a")
        next(g)
        raise ValueError("no")

    try:
        inner(x)
    except ValueError as e:
        log.append("caught")
        log.append(str(e))
    log.append("after")
    return x + 1


def by_an_exception_that_is_kept(x, log):
    def inner(x):
        g = items(x, log, "a")
        next(g)
        raise ValueError("no")

    kept = None
    try:
        inner(x)
    except ValueError as e:
        kept = e
    log.append("after")
    kept = None
    log.append("gone")
    return x + 1


def loop_left_by_an_exception(x, log):
    def inner(x):
        for t in items(x, log, "a"):
            raise ValueError

    try:
        inner(x)
    except ValueError:
        log.append("caught")
    log.append("after")
    return x + 1


def behind_yield_from(x, log):
    def outer():
        try:
            yield from items(x, log, "in")
        finally:
            log.append("out")

    for t in outer():
        break
    log.append("after")
    return t


def held_by_another_that_waits(x, log):
    def outer():
        g = items(x, log, "in")
        try:
            yield next(g)
            yield next(g)
        finally:
            log.append("out")

    held = [outer(), items(x, log, "z")]
    t = next(held[0]) + next(held[1])
    held = None
    log.append("after")
    return t


def with_a_break_in_its_end(x, log):
    def gen():
        try:
            yield x + 1
            yield x + 2
        finally:
            print("", end="")
            log.append("fin")

    held = [gen()]
    t = next(held[0])
    held = None
    log.append("after")
    return t * 2


def kept_over_a_break(x, log):
    held = [items(x, log, "a")]
    t = next(held[0])
    print("", end="")
    log.append("after")
    return t * 2


def attribute_bound_again_and_deleted(x, log):
    class A:
        def __init__(self):
            self.g = items(x, log, "a")

    a = A()
    t = next(a.g)
    a.g = None
    log.append("mid")
    a.g = items(x, log, "b")
    t = t + next(a.g)
    del a.g
    log.append("after")
    return t


def in_a_closure_of_the_frame(x, log):
    g = items(x, log, "a")

    def f():
        return next(g)

    t = f()
    log.append("after")
    return t


def that_leaves_another_in_its_end(x, log):
    def gen():
        try:
            yield x + 1
        finally:
            log.append("f1")
            for t in items(x, log, "q"):
                break
            log.append("f2")

    g = gen()
    t = next(g)
    del g
    log.append("after")
    return t


def behind_a_zip_in_a_variable(x, log):
    z = zip(items(x, log, "a"), items(x, log, "b"))
    a, b = next(z)
    z = None
    log.append("after")
    return a + b


def behind_a_generator_expression(x, log):
    g = (t * 2 for t in items(x, log, "a"))
    t = next(g)
    g = None
    log.append("after")
    return t


def in_a_deque(x, log):
    d = collections.deque([items(x, log, "a"), items(x, log, "b")])
    t = next(d[0]) + next(d[1])
    d.popleft()
    log.append("mid")
    d.clear()
    log.append("after")
    return t


def in_a_set(x, log):
    s = {items(x, log, "a")}
    for g in s:
        t = next(g)
    g = None
    log.append("mid")
    s.clear()
    log.append("after")
    return t


PROGRAMS = [
    in_a_list,
    two_in_a_list,
    in_a_dict,
    in_a_tuple,
    in_an_instance,
    in_a_list_of_the_caller,
    returned_in_a_list,
    list_deleted,
    list_bound_again,
    list_cleared,
    variable_bound_again,
    variable_deleted,
    two_variables,
    in_a_closure,
    list_of_three_deleted,
    by_an_exception_in_a_callee,
    by_a_named_exception_in_a_callee,
    by_an_exception_that_is_kept,
    loop_left_by_an_exception,
    behind_yield_from,
    held_by_another_that_waits,
    with_a_break_in_its_end,
    kept_over_a_break,
    attribute_bound_again_and_deleted,
    in_a_closure_of_the_frame,
    that_leaves_another_in_its_end,
    behind_a_zip_in_a_variable,
    behind_a_generator_expression,
    in_a_deque,
    in_a_set,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_ends_when_the_last_reference_goes(check, program):
    check(program, torch.ones(2), [], graphs=None)
