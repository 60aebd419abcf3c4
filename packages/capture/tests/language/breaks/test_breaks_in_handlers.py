"""Graph breaks inside inlined functions, where handlers, context managers and generators wait."""

import contextlib

import pytest
import torch
from flambeau_capture import disable, graph_break
from nested_programs import break_and_add, through, x


@pytest.mark.parametrize("where", ["inner", "middle", "outer", "nowhere"])
def test_exceptions_of_the_instruction_find_their_handlers(check, where):
    places = ("inner", "middle", "outer")
    caught = {place: ValueError if place == where else KeyError for place in places}

    @disable
    def fails(log):
        log.append("raise")
        raise ValueError("no")

    def inner(t, log):
        t = t + 1
        try:
            fails(log)
        except caught["inner"]:
            log.append("inner")
            t = t * 10
        finally:
            log.append("finally inner")
        return t - 1

    def middle(t, log):
        try:
            return inner(t * 2, log) + 5
        except caught["middle"] as error:
            log.append(("middle", str(error)))
            return t

    def fn(t, log):
        a = t.cos()
        try:
            t = middle(a, log)
            log.append("went on")
        except caught["outer"]:
            log.append("outer")
            t = t * 3
        return t + a

    check(fn, x(), [], graphs=None)


def test_program_raises_in_a_callee(check):
    def inner(t, log):
        t = t + 1
        log.append(t)
        if len(log) > 1:
            raise RuntimeError("meant")
        return t

    def fn(t, log):
        t = inner(t, log)
        log.append("between")
        return inner(t, log)

    check(fn, x(), [], graphs=1)


def test_context_managers_around_the_call(check):
    @contextlib.contextmanager
    def noted(log, name):
        log.append(f"enter {name}")
        try:
            yield name
        finally:
            log.append(f"exit {name}")

    class Guard:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("in")
            return self

        def __exit__(self, *error):
            self.log.append(("out", error[0]))
            return False

    def fn(t, log):
        with Guard(log) as guard:
            t = through(t + 1, log)
            guard.log.append("inside")
            with torch.no_grad():
                t = through(t, log)
        with noted(log, "a") as name:
            log.append(name)
            t = through(t, log)
        return t

    check(fn, x(), [], graphs=None)


def test_comprehension_keeps_what_it_has_made(check):
    def fn(t):
        parts = [break_and_add(t + i) for i in range(3)]
        table = {i: break_and_add(t * i) for i in range(2)}
        return parts, table

    check(fn, x(), graphs=None)


def test_generator_made_before_the_break_goes_on(check):
    def numbers(t):
        total = 0
        for i in range(5):
            got = yield t + i
            total += i if got is None else got
        return total

    def fn(t):
        made = numbers(t)
        first = next(made)
        made.send(10)
        graph_break()
        return first, list(made)

    check(fn, x(), graphs=None)


def test_generators_outlive_the_compiled_part(check, backend):
    def numbers(t, log):
        try:
            for i in range(4):
                got = yield t + i
                log.append(got)
        finally:
            log.append("closed")

    def chained(t, log):
        yield from numbers(t, log)
        yield t * 100

    def fn(t, log):
        fresh = numbers(t * 2, log)
        half = chained(t + 1, log)
        spent = (item for item in [1])
        list(spent)
        first = next(half)
        second = half.send("sent")
        graph_break()
        rest = list(half)
        half.close()
        closed = next(fresh)
        fresh.close()
        return first, second, rest, closed, list(spent), list(fresh)

    check(fn, x(), [], graphs=None)


def test_generator_is_returned(capture, backend):
    def fn(t):
        scale = t * 2
        made = (scale + i for i in range(3))
        return next(made), made

    first, made = capture(fn)(x())
    assert torch.equal(first, x() * 2)
    assert [float(v[0]) for v in made] == [1.0, 2.0]
    assert len(backend) == 1


def test_thrown_into_after_a_break(check):
    def careful(t, log):
        while True:
            try:
                t = yield t + 1
            except ValueError as error:
                log.append(str(error))
                t = t * 2

    def fn(t, log):
        made = careful(t, log)
        a = next(made)
        graph_break()
        b = made.throw(ValueError("here"))
        return a, b, made.send(t * 5)

    check(fn, x(), [], graphs=None)


def test_break_inside_an_exception_handler(check, backend):
    def fn(t, log):
        t = t + 1
        try:
            raise KeyError("lost")
        except KeyError as error:
            t = t * 2
            graph_break()
            log.append(repr(error))
            t = t - 3
            try:
                raise ValueError("again")
            except ValueError:
                graph_break()
                log.append("inner")
            t = t.sin()
        else:
            log.append("never")
        finally:
            log.append("finally")
        return t + 1

    check(fn, x(), [], graphs=1)  # Python alone makes the traceback of what is handled


def test_reraise_after_a_break_in_a_handler(check):
    def inner(t, log):
        try:
            t = t + 1
            raise ValueError("first")
        except ValueError:
            graph_break()
            log.append("seen")
            raise

    def fn(t, log):
        try:
            return inner(t, log)
        except ValueError as error:
            log.append(str(error))
            return t * 2

    check(fn, x(), [], graphs=None)


def test_no_exception_is_left_behind(check):
    import sys

    def fn(t):
        try:
            raise KeyError("gone")
        except KeyError:
            t = t + 1
            graph_break()
            t = t + 2
        inside = sys.exc_info()[0]
        try:
            raise ValueError("new")
        except ValueError as error:
            kept = error
        return t, inside, kept.__context__

    check(fn, x(), graphs=None)
