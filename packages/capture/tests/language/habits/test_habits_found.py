"""What programs as other teams write them have found, each for the fault that it showed."""

import collections
import enum
import functools
import heapq
import io
import operator

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
    assert len(backend) == 1


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


class Key:
    def __init__(self, first, second):
        self.parts = first, second

    def __eq__(self, other):
        return self.parts == other.parts

    def __hash__(self):
        return hash(self.parts)


def test_a_cache_whose_keys_say_what_they_equal(check):
    def f(x, cache, first, second):
        key = Key(first, second)
        if key not in cache:
            cache[key] = x * first
        return cache[key] + second, len(cache)

    check(f, torch.ones(2), {}, 1, 2, graphs=None)

    def g(x):
        made = {}
        for first in (1, 1, 2):
            f(x, made, first, 2)
        return len(made), list(made.values())

    check(g, torch.ones(2))


SECOND, SHAPE = operator.itemgetter(1), operator.attrgetter("shape")
TRIPLE, TOTAL = operator.methodcaller("mul", 3), operator.methodcaller("sum", dim=0)


def test_getters_that_modules_keep(check):
    def f(x):
        rows = sorted([(2, 5), (1, 9), (7, 1)], key=SECOND)
        return rows, max(rows, key=SECOND), SHAPE(x), TRIPLE(x), TOTAL(x), SECOND is SECOND

    check(f, torch.ones(2))


def test_throwing_a_class_and_a_value(check):
    def numbers(x):
        try:
            yield x
            yield x * 2
        except ValueError as error:
            yield error.args

    def f(x):
        found = []
        for given in (("v",), ("v", 1), (ValueError("w"),), (None,), ()):
            waiting = numbers(x)
            next(waiting)
            if len(given) == 2:
                found.append(waiting.throw(ValueError, given))
            else:
                found.append(waiting.throw(ValueError, *given))
        return x + 1, found

    check(f, torch.ones(2))


def test_the_greatest_first(check):
    def f(x):
        words = ["pear", "fig", "apple", "kiwi"]
        return (
            x * 2, heapq.nsmallest(2, words), heapq.nlargest(2, words, key=len),
            list(heapq.merge([1, 4, 6], [2, 3], key=lambda n: n)),
        )  # fmt: skip

    check(f, torch.ones(2))


def test_containers_that_change_while_they_are_iterated(check):
    def f(x, counts):
        found = []
        for key, value in counts.items():
            found.append((key, value))
            counts["c"] += 10
        for value in counts.values():
            found.append(value)
            counts["b"] = 7
        for made in (
            {"a": 1},
            {1, 2},
            collections.OrderedDict(a=1),
            collections.OrderedDict(a=1, b=2),
        ):
            try:
                for item in made:
                    if isinstance(made, set):
                        made.add(item + 100)
                    else:
                        made[f"{item}x"] = 1
                found.append(("ended", len(made)))
            except RuntimeError as error:
                found.append(str(error))
        items = iter(counts.items())
        next(items)
        counts["c"] = 99
        return x + 1, found, list(items)

    check(f, torch.ones(2), {"a": 1, "b": 2, "c": 3})


class Sized:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


def test_a_length_that_varies_stays_open(capture, backend):
    sized = Sized(2)

    def f(x):
        return x * len(sized)

    compiled = capture(f)
    for size in (2, 3, 4, 9):
        sized.size = size
        torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), float(size)))
    assert len(backend) == 2


def test_a_length_that_is_none(check):
    def f(x, size):
        try:
            return x, len(Sized(size))
        except (TypeError, ValueError) as error:
            return x * 2, type(error), str(error)

    for size in (-1, "a", 1.5, None):
        check(f, torch.ones(2), size)


class Reduction(str, enum.Enum):  # noqa: UP042 - as programs write it
    SUM = "sum"
    MEAN = "mean"

    def __call__(self, x):
        return getattr(x, self)()


def test_members_that_are_called_and_name_attributes(check):
    def f(x, reduction):
        return reduction(x), getattr(torch, Reduction.SUM)(x), hasattr(x, Reduction.MEAN)

    check(f, torch.ones(2), Reduction.MEAN)
