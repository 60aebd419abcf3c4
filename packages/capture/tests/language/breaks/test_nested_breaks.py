"""Graph breaks inside inlined functions: every caller keeps its graph and goes on where it was."""

import contextlib
import copy
import functools
import math

import pytest
import torch
from flambeau_capture import disable, graph_break, optimize


def x():
    return torch.arange(6.0)


@disable
def opaque(value):
    return value


def break_and_add(t, log=None):
    t = t + 1
    if log is not None:
        log.append("before")
    graph_break()
    if log is not None:
        log.append("after")
    return t * 2


def through(t, log=None):
    t = break_and_add(t - 3, log)
    return t.sin()


def test_one_graph_before_and_one_after(check, backend):
    def fn(t):
        t = t * 5
        t = through(t)
        return t + 7

    check(fn, x(), graphs=2)
    assert len(backend.operations(0)) == 3
    assert len(backend.operations(1)) == 3


def test_depth_does_not_matter(check):
    def deep(t, n):
        if n == 0:
            t = t + 1
            graph_break()
            return t * 3
        return deep(t * 2, n - 1) + n

    def fn(t):
        return deep(t, 6) - 1

    check(fn, x(), graphs=2)


def test_two_breaks_in_one_callee(check):
    def inner(t):
        t = t + 1
        graph_break()
        t = t * 2
        graph_break()
        return t - 3

    def fn(t):
        a = t.cos()
        b = inner(t)
        return a + b

    check(fn, x(), graphs=3)


def test_result_of_the_break_is_used_by_the_callee(check):
    def inner(t):
        n = opaque(3)
        return t * n

    def fn(t, k):
        a = t + 1
        return [inner(a) + k, a]

    check(fn, x(), 2, graphs=2)


def test_branch_on_data_in_a_callee(check):
    def inner(t):
        if t.sum() > 3:
            return t + 1
        return t - 1

    def fn(t):
        return inner(t * 2) * 3

    check(fn, x(), graphs=2)
    check(fn, -x(), graphs=2)
    check(fn, torch.ones(1), graphs=1)  # that of one element is read before the graph
    check(fn, -torch.ones(1), graphs=1)


def test_a_number_that_python_needs_in_a_callee(check):
    def inner(t):
        n = math.sin(t.sum().item())
        return t * n

    def fn(t):
        a = t + 1
        b = inner(a)
        return a - b

    check(fn, x(), graphs=2)
    check(fn, torch.ones(1), graphs=1)  # that of one element is read before the graph


def test_effects_keep_their_order(check):
    def fn(t, log):
        log.append("outer")
        t = through(t, log)
        log.append(len(log))
        return t + 1

    check(fn, x(), [], graphs=2)


def test_methods_and_modules(capture, backend):
    class Inner(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(6, 6)

        def forward(self, t):
            t = self.linear(t)
            graph_break()
            return t.relu()

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([Inner(), Inner()])
            self.head = torch.nn.Linear(6, 2)

        def forward(self, t):
            for layer in self.layers:
                t = layer(t) + t
            return self.head(t)

    torch.manual_seed(0)
    model = Outer()
    theirs = copy.deepcopy(model)
    compiled = capture(lambda t: model(t))
    for _ in range(3):
        assert torch.allclose(compiled(x()), theirs(x()))
    assert len(backend) == 3


def test_constructor_that_breaks(check):
    class Holder:
        def __init__(self, t):
            self.first = t + 1
            graph_break()
            self.second = t * 2

        def total(self):
            return self.first + self.second

    def fn(t):
        held = Holder(t.sin())
        return held.total() - 1

    check(fn, x(), graphs=2)


def test_keyword_and_star_arguments(check):
    def inner(t, *rest, scale=1, **more):
        t = t * scale
        graph_break()
        return t + sum(rest) + more["k"]

    def fn(t, options):
        t = inner(t, 1, 2, scale=3, k=4)
        t = inner(*[t, 5], **options)
        return functools.partial(inner, k=1)(t, 2)

    check(fn, x(), {"k": 7, "scale": 2}, graphs=4)


def test_closures_and_cells(check):
    def fn(t):
        count = 0

        def inner(v):
            nonlocal count
            count += 1
            kept = v + count

            def late():
                return kept * count

            graph_break()
            count += 10
            return late()

        t = inner(t) + count
        t = inner(t) + count
        return t, count

    check(fn, x(), graphs=3)


def test_recursive_inner_function(check):
    def fn(t):
        def walk(v, n):
            if n == 0:
                graph_break()
                return v
            return walk(v + 1, n - 1) * 2

        return walk(t, 3)

    check(fn, x(), graphs=2)


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


def test_long_loop_does_not_grow_the_stack(check, backend):
    def inner(t):
        graph_break()
        return t + 1

    def fn(t, n):
        for _ in range(n):
            t = inner(t)
        return t

    check(fn, torch.zeros(2), 1500, graphs=None)
    assert len(backend) < 12


def test_disabled_call_inside_a_comprehension_in_a_callee(check):
    def pick(items):
        return [opaque(item) for item in items]

    def fn(t, items):
        t = t + 1
        for item in pick(items):
            t = t * item
        return t

    check(fn, x(), [1, 2, 3], graphs=None)


def test_aliases_between_frames_stay_aliases(check):
    def inner(items, t):
        own = items
        own.append(t + 1)
        graph_break()
        own.append(t + 2)
        return own

    def fn(t):
        items = [t]
        back = inner(items, t)
        return back is items, len(items), items

    check(fn, x(), graphs=2)


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


@pytest.mark.parametrize("name", ["orthogonal", "spectral_norm", "weight_norm"])
def test_resume_functions_made_of_resume_functions(name, backend):
    """Functions of a library with many breaks at many depths, where instances are made besides."""
    register = getattr(torch.nn.utils.parametrizations, name)

    def fn(module):
        with contextlib.suppress(ValueError):
            register(module)
        return len(list(module.parameters())) * x()

    modules = []
    for run in (fn, optimize(backend)(fn)):
        torch.manual_seed(0)
        modules.append(torch.nn.Linear(6, 6))
        torch.testing.assert_close(run(modules[-1]), fn(copy.deepcopy(modules[-1])))
    states = [module.state_dict() for module in modules]
    assert list(states[0]) == list(states[1])
    for expected, got in zip(*(state.values() for state in states), strict=True):
        torch.testing.assert_close(got, expected)


class Made:
    def __init__(self, k, fails):
        self.k = opaque(k)
        if fails:
            raise ValueError(k)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_constructors_that_break_one_after_another(check, count, fails):
    """What a resume function was given for one call is not taken for that of the next."""
    lines = [
        line
        for n in range(count)
        for line in (
            f"    try: t = t * Made({n + 2}, {fails and n == count - 1}).k",
            "    except ValueError: t = t - opaque(1)",
        )
    ]
    space = dict(globals())
    exec("\n".join(["def fn(t):", *lines, "    return t + 1"]), space)
    check(space["fn"], x(), graphs=None)
