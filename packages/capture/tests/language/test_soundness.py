"""What an entry assumes: when it changes, another one is made. Wrong answers are the worst."""

import warnings
from collections import OrderedDict

import pytest
import torch
from flambeau_capture import optimize


def x():
    return torch.arange(6.0)


def follows(capture, fn, *argument_lists):
    """Compiled and eager agree on every argument list, in this order."""
    compiled = capture(fn, cache_size_limit=20)
    for args in argument_lists:
        ours, theirs = compiled(*args), fn(*args)
        assert type(ours) is type(theirs)
        same = torch.equal if isinstance(ours, torch.Tensor) else (lambda a, b: a == b)
        assert same(ours, theirs), args
    return compiled


def test_kind_of_an_argument(capture):
    def fn(t, other):
        if torch.is_tensor(other):
            return t + 1
        if other is None:
            return t + 2
        if isinstance(other, str):
            return t + 3
        if hasattr(other, "dim"):
            return t + 4
        return t + 5

    follows(capture, fn, *((x(), v) for v in (x(), None, "s", 3, [1], x(), object, 2.0, True, 1)))


def counters(shared):
    """A function that writes to a variable and one that reads one: the same, or its twin."""

    def both():
        count = 1

        def bump(n):
            nonlocal count
            count += n

        def read():
            return count

        return bump, read

    bump, read = both()
    return (bump, read) if shared else (bump, both()[1])


def test_variables_that_functions_share_or_do_not(capture, backend):
    def fn(t, bump, read):
        bump(3)
        return t * read()

    for first in (True, False):
        compiled = capture(fn)
        for shared in (first, not first, first, not first):
            assert torch.equal(compiled(x(), *counters(shared)), x() * (4 if shared else 1))


def test_own_variables_that_hold_one_object(capture, backend):
    """Two variables with one content are two variables: writing to one leaves the other."""

    def make(count, limit, bump=None):
        def own(n):
            nonlocal count
            count += n

        def fn(t):
            nonlocal limit
            (bump or own)(2)
            limit = limit + 1
            return t * count + limit

        return fn, own

    for start in (3, 4):
        fn, own = make(start, start)
        other, _ = make(start, start, bump=own)
        for function, expected in ((fn, (start + 2, start + 1)), (other, (start, start + 1))):
            compiled = capture(function)
            count, limit = expected
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert torch.equal(compiled(x()), x() * count + limit)


def test_identity_of_arguments(capture):
    def fn(t, a, b):
        return t + 1 if a is b else t - 1

    one, other = [1], [1]
    follows(capture, fn, (x(), one, other), (x(), one, one), (x(), other, one))
    p, q = x(), x()
    follows(capture, fn, (x(), p, q), (x(), p, p))


def test_lengths_keys_and_values(capture):
    def fn(t, items, table):
        return t + len(items) + sum(table.values()) + ("k" in table)

    follows(
        capture, fn,
        (x(), [1], {"k": 1}), (x(), [1, 2], {"k": 1}), (x(), [3], {"k": 2}), (x(), [1], {"j": 1}),
    )  # fmt: skip


def test_one_true_and_one_point_zero_are_different(capture):
    def fn(t, n):
        return str(n), (t * n).dtype

    compiled = capture(fn)
    for n in (1, True, 1.0, 0.0, -0.0, 1):
        assert compiled(x(), n) == fn(x(), n)


def test_method_put_on_a_subclass(capture, monkeypatch):
    class Base:
        def run(self, t):
            return t + 1

    class Derived(Base):
        pass

    def fn(t, obj):
        return obj.run(t)

    compiled = follows(capture, fn, (x(), Derived()))
    monkeypatch.setattr(Derived, "run", lambda self, t: t + 2, raising=False)
    assert torch.equal(compiled(x(), Derived()), x() + 2)


def test_forward_of_a_library_class_is_replaced(capture, monkeypatch):
    module = torch.nn.Linear(6, 6)

    def fn(t):
        return module(t)

    compiled = follows(capture, fn, (x(),))
    monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, t: t * 0)
    assert torch.equal(compiled(x()), x() * 0)


def test_builtin_hidden_by_a_global(capture, monkeypatch):
    def fn(t):
        return t + len([1, 2])

    compiled = follows(capture, fn, (x(),))
    monkeypatch.setitem(fn.__globals__, "len", lambda items: 40)
    assert torch.equal(compiled(x()), x() + 40)


def test_closure_contents_change(capture):
    n = 1

    def fn(t):
        return t + n

    compiled = follows(capture, fn, (x(),))
    n = 5
    assert torch.equal(compiled(x()), x() + 5)


def test_default_argument_that_is_changed(capture):
    def inner(t, seen=[]):  # noqa: B006 - the point of the test
        seen.append(1)
        return t + len(seen)

    def fn(t):
        return inner(t)

    compiled = capture(fn)
    assert [float(compiled(x())[0]) for _ in range(3)] == [1.0, 2.0, 3.0]


def test_existing_dict_subclass_is_changed(capture):
    class Table(OrderedDict):
        def __setitem__(self, key, value):
            super().__setitem__(key, ("set", value))

    class Items(list):
        def append(self, item):
            super().append(("added", item))

    def fn(t, table, items):
        table["b"] = t + 1
        items.append(2)
        del table["a"]
        return t * len(table) + len(items)

    def state():
        return Table(a=1), Items([0])

    (table, items), (their_table, their_items) = state(), state()
    assert torch.equal(capture(fn)(x(), table, items), fn(x(), their_table, their_items))
    assert list(table) == list(their_table) == ["b"] and table["b"][0] == "set"
    assert items == their_items


def test_order_of_sets(capture):
    def fn(t, given):
        made = {"one", "two", "three", "four", "five"}
        made.discard("two")
        made.add("six")
        given.add("seven")
        return list(made), list(given), list(made | given), list(frozenset("hello"))

    compiled = capture(fn)
    assert compiled(x(), set("abc")) == fn(x(), set("abc"))


def test_methods_compare(capture):
    class Thing:
        def run(self):
            return 1

    def fn(t, a, b):
        return t + 1, a.run == a.run, a.run == b.run, a.run is a.run, t.sum == t.sum

    a, b = Thing(), Thing()
    assert capture(fn)(x(), a, b)[1:] == fn(x(), a, b)[1:]


def test_compiled_inside_compiled(capture, backend):
    def inner(t):
        return t * 2

    compiled_inner = capture(inner)
    module = capture(torch.nn.Linear(6, 6))

    def fn(t):
        return module(compiled_inner(t) + 1)

    assert torch.equal(capture(fn)(x()), module(x() * 2 + 1))
    backend.clear()
    capture(fn)(x())
    assert len(backend) == 1


def test_what_can_be_compiled(capture):
    import functools

    class Thing:
        def __init__(self, k):
            self.k = k

        def run(self, t):
            return t * self.k

        def __call__(self, t):
            return t + self.k

        @classmethod
        def build(cls, t):
            return t - 1

    thing = Thing(3)
    assert torch.equal(capture(thing.run)(x()), x() * 3)
    assert torch.equal(capture(thing)(x()), x() + 3)
    assert torch.equal(capture(Thing.build)(x()), x() - 1)
    assert torch.equal(capture(functools.partial(thing.run))(x()), x() * 3)

    class Holder:
        @capture
        def run(self, t):
            """Text."""
            return t * 7

    assert torch.equal(Holder().run(x()), x() * 7)
    assert Holder.run.__doc__ == "Text." and Holder.run.__name__ == "run"
    with pytest.raises(TypeError, match="cannot be called"):
        capture(3)
    with pytest.raises(TypeError, match="not a class"):
        capture(Thing)


def test_run_only_uses_what_exists(capture, backend):
    from flambeau_capture import run

    compiled = capture(lambda t: t + 1)
    compiled(x())
    with run():
        assert torch.equal(compiled(x()), x() + 1)
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 1)
    assert len(backend) == 1
    assert torch.equal(run(compiled)(torch.ones(3)), torch.ones(3) + 1)
    assert len(backend) == 1
    compiled(torch.ones(2))
    assert len(backend) == 2


def test_reset_forgets(capture, backend):
    from flambeau_capture import reset

    compiled = capture(lambda t: t + 1)
    compiled(x())
    reset()
    compiled(x())
    assert len(backend) == 2


def test_unknown_backend_lists_the_known():
    with pytest.raises(ValueError, match=r"no backend 'nope'.*eager"):
        optimize("nope")


def test_internal_error_falls_back(monkeypatch):
    import warnings

    from flambeau_capture import CaptureWarning
    from flambeau_capture.interp import frame

    def broken(self):
        raise AssertionError("a fault of capture")

    monkeypatch.setattr(frame.Frame, "step", broken)
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
    compiled = optimize("eager")(lambda t: t + 1)
    with pytest.warns(CaptureWarning, match="a fault of capture"):
        assert torch.equal(compiled(x()), x() + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(x()), x() + 1)


def test_grad_mode_is_left_as_it_was(capture):
    def fn(t):
        torch.set_grad_enabled(False)
        return t * 2

    compiled = capture(fn)
    assert torch.is_grad_enabled()
    try:
        assert not compiled(x().requires_grad_()).requires_grad
        assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)
    with torch.no_grad():
        compiled(x())
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_large_tables_are_asked_not_guarded_whole(capture, backend):
    def fn(t, table, names):
        return t + table["k7"] + table.get("zzz", 5) + ("n3" in names) + len(names)

    table = {f"k{i}": i for i in range(1000)}
    names = {f"n{i}" for i in range(1000)}
    compiled = follows(capture, fn, (x(), table, names))
    table["k8"] = 100
    follows_on = compiled(x(), table, names)
    assert torch.equal(follows_on, fn(x(), table, names)) and len(backend) == 1
    table["zzz"] = 3
    assert torch.equal(compiled(x(), table, names), fn(x(), table, names))
    table["k7"] = 1
    assert torch.equal(compiled(x(), table, names), fn(x(), table, names))
    names.discard("n3")
    assert torch.equal(compiled(x(), table, names), fn(x(), table, names))
    assert len(backend) == 4


def test_long_python_loops_are_left_to_python(capture, backend):
    def count(n):
        total = 0
        for i in range(n):
            total += i
        return total

    def fn(t, n):
        return t + count(n)

    compiled = capture(fn, idle_step_limit=2000)
    assert torch.equal(compiled(x(), 10_000), fn(x(), 10_000))


def test_globals_of_another_module(capture):
    import types

    other = types.ModuleType("other")
    exec(
        "state = 1\ndef bump(t):\n    global state\n    state += 1\n    return t + state\n",
        other.__dict__,
    )

    def fn(t):
        return other.bump(t) * 2 + other.state

    compiled = capture(fn)
    for expected in (2, 3, 4):
        assert torch.equal(compiled(x()), (x() + expected) * 2 + expected)
        assert other.state == expected


def test_custom_autograd_function(capture):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t * 2

        @staticmethod
        def backward(ctx, grad):
            (t,) = ctx.saved_tensors
            return grad * 3 + t * 0

    def fn(t):
        return Double.apply(t + 1).sum()

    for call in (capture(fn), fn):
        t = x().requires_grad_()
        call(t).backward()
        assert torch.equal(t.grad, torch.full((6,), 3.0))


def test_checkpoint(capture):
    from torch.utils.checkpoint import checkpoint

    lin = torch.nn.Linear(6, 6)

    def fn(t):
        return checkpoint(lambda v: torch.sin(lin(v)), t + 1, use_reentrant=False).sum()

    grads = []
    for call in (capture(fn), fn):
        lin.zero_grad()
        call(x()).backward()
        grads.append(lin.weight.grad.clone())
    assert torch.allclose(*grads)


def test_numpy_scalars_and_size_arithmetic(capture):
    import numpy

    def fn(t, k):
        b, *_ = t.shape
        n = t.numel() // b
        return t.reshape(b, n) * float(k) + t.shape[0] * t.stride(0), t.shape + (1,), t.size()

    compiled = capture(fn)
    ours, theirs = compiled(torch.ones(2, 3), numpy.float32(2)), fn(torch.ones(2, 3), 2.0)
    assert torch.equal(ours[0], theirs[0]) and ours[1:] == theirs[1:]
    assert type(ours[2]) is torch.Size
