"""What programs as other teams write them have found, each for the fault that it showed."""

import enum
import functools
import io

import torch


class Quantity:
    def __init__(self, unit):
        self.unit = unit

    def __eq__(self, other):
        return isinstance(other, Quantity) and self.unit == other.unit


class Refuses:
    def __eq__(self, other):
        return NotImplemented


class Derived(Quantity):
    pass


def test_not_equal_is_what_equal_denies(check):
    def f(x):
        one, same, other = Quantity(1), Quantity(1), Quantity(2)
        return (
            x + 1, one != same, one != other, not one != same, Derived(1) != one, one != 3,
            [one] != [same], (one, 1) != (same, 1), {1: one} != {1: same}, one in [same],
            Refuses() != Refuses(), 3 != one,
        )  # fmt: skip

    check(f, torch.ones(2))


class Color(enum.Enum):
    RED = 1


def test_a_member_that_an_enum_lacks(check):
    def f(x, name):
        try:
            return x * Color[name].value, None
        except KeyError as error:
            return x, str(error)

    check(f, torch.ones(2), "RED")
    check(f, torch.ones(2), "GREEN", graphs=None)


def test_a_function_that_counts_its_calls(capture, backend):
    def counting(function):
        @functools.wraps(function)
        def wrapper(*args):
            wrapper.calls += 1
            wrapper.last = args[0].shape
            return function(*args)

        wrapper.calls = 0
        return wrapper

    @counting
    def double(x):
        return x * 2

    compiled = capture(lambda x: double(x) + double.calls)
    for call in range(1, 8):
        torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 2.0 + call))
        assert (double.calls, double.last) == (call, torch.Size([2]))
    assert len(backend) <= 7


def test_text_that_is_written_to_a_file_in_memory_keeps_the_graph_around_it(capture, backend):
    def f(x):
        y = x * 2
        out = io.StringIO()
        out.write(f"{tuple(y.shape)}")
        return y + 1, out.getvalue()

    compiled = capture(f)
    value, text = compiled(torch.ones(2))
    assert text == "(2,)" and value.tolist() == [3.0, 3.0]
    assert len(backend) == 2


def test_an_iterator_or_a_slice_that_is_kept_twice_is_one_object(check):
    def f(x):
        numbers, part = iter([1, 2, 3]), slice(1, None)
        pair = [numbers, numbers, part, part]
        taken = next(pair[0])
        return x[part] * taken, pair[0] is pair[1], pair

    def g(x):
        value, same, pair = f(x)
        return value, same, next(pair[0]), next(pair[1]), pair[2] is pair[3]

    check(f_of(f), torch.ones(3))
    check(g, torch.ones(3))


def f_of(f):
    def one(x):
        value, same, pair = f(x)
        return value, same, pair[0] is pair[1], list(pair[1])

    return one
