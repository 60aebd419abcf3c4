"""Graph breaks inside inlined functions: every caller keeps its graph and goes on where it was."""

import contextlib
import copy
import functools
import math

import pytest
import torch
from flambeau_capture import graph_break, optimize
from nested_programs import opaque, through, x


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
