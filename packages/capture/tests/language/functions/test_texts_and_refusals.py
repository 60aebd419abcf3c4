"""Format strings of objects, and what built-in functions and operators refuse in one graph."""

import array
import bisect
import datetime
import decimal
import itertools
import time
import types

import pytest
import torch


class Shown:
    items = (1, [2, 3])

    def __repr__(self):
        return "shown"

    def __format__(self, spec):
        return f"<{spec}>"


FORMATS = {
    "attributes and items": lambda one: "{0.items[1][0]} {0!r:>7} {x:a{y}}".format(one, x=one, y=2),
    "numbering": lambda one: f"{one}{one:b}{{}}",
    "no attribute": lambda one: f"{one.other}",
    "a proxy": lambda one: f"{types.MappingProxyType({1: 'a'})!r} {types.MappingProxyType({1: 2})}",
}
REFUSED = {
    "range": lambda one: range(iter([1]), one),
    "an index of bytes": lambda one: b"ab"[one],
    "an index of a number": lambda one: (5)[one],
    "an iterator |": lambda one: iter([1]) | {},
    "a function //": lambda one: len // 2.0,
    "an order of iterators": lambda one: zip() <= {},
    "an order of a dict": lambda one: {1: 2} < iter([]),
    "a shift of a set": lambda one: frozenset() << iter([]),
    "where enumerate starts": lambda one: enumerate(one, len),
}


def same(capture, run):
    def program(x):
        try:
            return x + 1, run(Shown())
        except Exception as error:
            return x + 2, type(error).__name__, str(error)

    found, expected = capture(program, nopython=True)(torch.ones(2)), program(torch.ones(2))
    assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]


@pytest.mark.parametrize("name", FORMATS)
def test_format_strings_ask_objects_in_order(capture, name):
    same(capture, FORMATS[name])


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_class_answers_raises_in_one_graph(capture, name):
    same(capture, REFUSED[name])


MADE = {
    "combinations": lambda n: itertools.combinations([1, 2], n),
    "combinations_with_replacement": lambda n: itertools.combinations_with_replacement([1], n),
    "permutations": lambda n: itertools.permutations([1, 2], n),
    "islice": lambda n: itertools.islice([1, 2, 3], n),
    "islice, its step": lambda n: itertools.islice([1, 2, 3], 0, 3, n),
    "product": lambda n: itertools.product([1], repeat=n),
}


@pytest.mark.parametrize("name", MADE)
def test_numbers_that_vary_are_refused_when_the_iterator_is_made(capture, name):
    def program(x, n):
        try:
            return x + 1, MADE[name](n)
        except ValueError as error:
            return x + 2, [str(error)]

    compiled = capture(program)
    for n in (4, 2, -1, 0, 3):
        found, expected = compiled(torch.ones(2), n), program(torch.ones(2), n)
        assert torch.equal(found[0], expected[0]) and [*found[1]] == [*expected[1]], n


class Counted(int):
    """Whose methods are asked when what is on the left answers nothing."""

    def __radd__(self, other):
        return "added", str(other)

    def __rmul__(self, other):
        return "times", str(other)

    def __gt__(self, other):
        return "above", str(other)


JOINED = {
    "a tuple and sizes": lambda x: (1,) + x.shape,
    "sizes and a tuple": lambda x: x.shape + (True,),
    "a sum of sizes": lambda x: sum([x.shape, x.shape], ()),
    "no number before": lambda x: ("a",) + x.shape,
    "no number after": lambda x: x.shape + (1.5,),
    "a decimal and a number": lambda x: decimal.Decimal(3) + Counted(2),
    "an order of a decimal": lambda x: decimal.Decimal(3) < Counted(4),
    "a difference and a number": lambda x: datetime.timedelta(1) * Counted(2),
    "an array and a number": lambda x: array.array("i", [1]) + Counted(2),
    "a decimal by nothing": lambda x: decimal.Decimal(3) * Counted(0),
    "values and keys": lambda x: {1: 2}.values() | {1: 2}.keys(),
    "values without keys": lambda x: {1: 2}.values() - {1: 2}.keys(),
    "values and values": lambda x: {1: 2}.values() | {1: 2}.values(),
}


@pytest.mark.parametrize("name", JOINED)
def test_the_right_operand_answers_for_what_the_left_one_does_not(capture, name):
    def program(x):
        try:
            return x + 1, JOINED[name](x)
        except TypeError as error:
            return x + 2, str(error)

    compiled = capture(program)
    for size in (2, 3, 5):
        found, expected = compiled(torch.ones(size)), program(torch.ones(size))
        assert torch.equal(found[0], expected[0]) and repr(found[1]) == repr(expected[1])


@pytest.mark.parametrize("end", [True, 9])
def test_a_number_that_varies_is_refused_as_itself_alone(capture, end):
    """Smaller ones, which would be refused for other reasons, say nothing of it."""

    def program(x, n):
        try:
            return x + 1, bisect.bisect_right(1.5, abs, n, end)
        except (TypeError, ValueError) as error:
            return x + 2, str(error)

    compiled = capture(program)
    for n in (2, 3, 0, -1, 12):
        found, expected = compiled(torch.ones(2), n), program(torch.ones(2), n)
        assert torch.equal(found[0], expected[0]) and found[1] == expected[1], n


@pytest.mark.parametrize("text", ["{:{}}", "{:{:{}}}", "{0:{1:{2}}}", "{:a{}b{}}"])
def test_a_specification_has_fields_without_fields(capture, text):
    def program(x, one):
        try:
            return x + 1, text.format(one, "7", 2)
        except ValueError as error:
            return x + 2, str(error)

    found, expected = (run(torch.ones(2), Shown()) for run in (capture(program), program))
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


def test_a_reading_is_no_object_of_another_class(capture):
    def program(x):
        start = time.perf_counter()
        return x + 1, start is None, (start < 0) is not None, start is x

    assert capture(program, nopython=True)(torch.ones(2))[1:] == (False, True, False)


def test_an_order_of_clocks_is_asked_by_the_running_code(capture):
    def program(x):
        start = time.perf_counter()
        return x + 1, time.perf_counter() - start < 100.0, start > 0

    assert capture(program, nopython=True)(torch.ones(2))[1:] == (True, True)


def test_a_deleted_variable_of_a_closure_is_missed(capture):
    def program(x):
        try:
            del k  # noqa: F821
        except UnboundLocalError as error:
            return x + 1, str(error), lambda: k
        k = 2

    found, expected = capture(program)(torch.ones(2)), program(torch.ones(2))
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
