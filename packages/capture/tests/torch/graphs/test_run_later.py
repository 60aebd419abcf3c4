"""What a hook, or a function's derivative, reads of the program's state: eager reads it when the
body runs, after the forward pass. Generated: ways to read it times kinds of bodies, with a change
between the passes; and what nothing sets again, which stays in one graph."""

import functools
import types

import pytest
import torch
from torch import nn


def in_module(source):
    """The functions of a module of this source, its globals named by `G`."""
    module = types.ModuleType("tests_run_later")
    module.__loader__ = types.SimpleNamespace(get_code=lambda name: code)
    code = compile(source, "tests_run_later", "exec")
    exec(code, vars(module))
    return module


def global_variable():
    module = in_module("G = 2\ndef scale(g): return g * G\ndef change():\n    global G\n    G = 5")
    return module.scale, module.change


def global_of_another():
    module = in_module("G = 2\n")

    def change():
        module.G = 5

    return lambda g: g * module.G, change


def cell():
    k = 2

    def change():
        nonlocal k
        k = 5

    return lambda g: g * k, change


def held(make, read, write):
    def way():
        state = make()
        return lambda g: g * read(state), lambda: write(state)

    return way


class Holder:
    def __init__(self):
        self.k = 2
        self.inner = [2]

    @property
    def doubled(self):
        return self.k * 2

    def scale(self, g):
        return g * self.k


class Slotted:
    __slots__ = ("k",)

    def __init__(self):
        self.k = 2


def own_class():
    return type("Own", (), {"k": 2})


def by_default():
    state = {"k": 2}

    def scale(g, state=state):
        return g * state["k"]

    return scale, lambda: state.update(k=5)


def by_partial():
    state = {"k": 2}
    scale = functools.partial(lambda state, g: g * state["k"], state)
    return scale, lambda: state.update(k=5)


def by_method():
    holder = Holder()
    return holder.scale, lambda: setattr(holder, "k", 5)


def set_k(state):
    state.k = 5


def raise_last(numbers):
    numbers[-1] += 3


def set_weight(module):
    module.weight = nn.Parameter(torch.full((1,), 5.0))


CHANGED = {
    "a global variable": global_variable,
    "a global variable of another module": global_of_another,
    "a variable around": cell,
    "an item of a dict": held(lambda: {"k": 2}, lambda d: d["k"], lambda d: d.update(k=5)),
    "get of a dict": held(lambda: {"k": 2}, lambda d: d.get("k"), lambda d: d.update(k=5)),
    "the length of a list": held(lambda: [1, 1], len, lambda s: s.append(1)),
    "an item of a list": held(lambda: [2], lambda s: s[0], lambda s: raise_last(s)),
    "a list in a tuple": held(lambda: ([2],), lambda t: t[0][0], lambda t: raise_last(t[0])),
    "a set": held(lambda: {2}, sum, lambda s: s.add(5)),
    "an attribute": held(Holder, lambda h: h.k, set_k),
    "a slot": held(Slotted, lambda h: h.k, set_k),
    "a property": held(Holder, lambda h: h.doubled, set_k),
    "a list of an object": held(Holder, lambda h: h.inner[0], lambda h: raise_last(h.inner)),
    "an attribute of a class": held(own_class, lambda c: c.k, set_k),
    "a mode": held(nn.Linear(1, 1).train, lambda m: 2 if m.training else 5, lambda m: m.eval()),
    "a parameter": held(lambda: nn.Linear(1, 1), lambda m: m.weight.detach()[0], set_weight),
    "a default": by_default,
    "a partial call": by_partial,
    "a method": by_method,
}  # fmt: skip


def of_tensor(scale):
    def run(x):
        y = x * 1
        y.register_hook(scale)
        return y.sin()

    return run


def of_function(scale):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return scale(g)

    return lambda x: Function.apply(x)


def of_context(scale):
    """The derivative finds it on its context."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, scale):
            ctx.scale = scale
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return ctx.scale(g), None

    return lambda x: Function.apply(x, scale)


def of_module(scale):
    module = nn.Tanh()
    module.register_full_backward_hook(lambda module, given, found: (scale(given[0]),))
    return lambda x: module(x * 1).sin()


BODIES = [of_tensor, of_function, of_context, of_module]


def derivative_after(run, change):
    x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    result = run(x)
    change()
    result.sum().backward()
    return x.grad


@pytest.mark.sweep(12)
@pytest.mark.parametrize("body", BODIES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("way", CHANGED)
def test_what_changes_before_it_runs(capture, same, way, body):
    scale, change = CHANGED[way]()
    expected = derivative_after(body(scale), change)
    scale, change = CHANGED[way]()
    same(derivative_after(capture(body(scale)), change), expected)


def set_after(x):
    k = 2
    y = x * 1
    y.register_hook(lambda g: g * k)
    k = 5
    return y.sin() * k


def set_in_a_loop(x):
    for k in (2.0, 3.0):
        x = x * 1
        x.register_hook(lambda g: g * k)  # noqa: B023
    return x.sin()


def written_after(x):
    k = [2]
    y = x * 1
    y.register_hook(lambda g: g * k[0])
    k[0] = 5
    return y.sin()


def changed_after(x):
    holder = Holder()
    y = x * 1
    y.register_hook(lambda g: g * holder.k)
    holder.k = 5
    return y.sin()


class Listed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, numbers):
        ctx.numbers = numbers
        return x * numbers[0]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.numbers[0], None


def list_written_after(x):
    numbers = [2]
    y = Listed.apply(x, numbers)
    numbers[0] = 5
    return y


@pytest.mark.parametrize(
    "run", [set_after, set_in_a_loop, written_after, changed_after, list_written_after]
)
def test_what_the_function_itself_changes(capture, same, run):
    expected = derivative_after(run, lambda: None)
    same(derivative_after(capture(run), lambda: None), expected)


ASKED = {
    "grad mode": (torch.is_grad_enabled, torch.no_grad),
    "autocast": (lambda: torch.is_autocast_enabled("cpu"), lambda: torch.autocast("cpu")),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("body", BODIES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("asked", ASKED)
def test_the_state_of_torch(capture, same, asked, body, inside):
    ask, entered = ASKED[asked]
    run = body(lambda g: g * 3 if ask() else g)

    def within(x):
        with torch.autocast("cpu", enabled=inside):
            return run(x)

    def derivative(run, create_graph):
        x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
        result = run(x).sum()
        with entered() if not create_graph else torch.enable_grad():
            return torch.autograd.grad(result, x, create_graph=create_graph)[0].detach()

    for create_graph in (False, True):
        expected = derivative(within, create_graph)
        same(derivative(capture(within), create_graph), expected)


@pytest.mark.parametrize("body", BODIES, ids=lambda each: each.__name__)
def test_what_is_run_outside_of_autocast(capture, backend, same, body):
    eye = torch.eye(3)
    run = body(lambda g: (g.unsqueeze(0) @ eye / 3)[0])

    def within(x):
        with torch.autocast("cpu"):
            return run(x).float()

    expected = derivative_after(within, lambda: None)
    found = derivative_after(capture(within, nopython=True), lambda: None)
    assert len(backend) == 1
    same(found, expected)


def argument(k):
    return lambda g: g * k


def of_frame():
    k = 2.0

    def scale(g):
        return g * k

    return scale


def chosen(flag=True):
    if flag:
        k = 2
    else:
        k = 3
    return lambda g: torch.clamp(g * k, -1, 1)


SETTLED = {
    "an argument": lambda: argument(2),
    "a variable set once": of_frame,
    "a variable set in one of two branches": chosen,
    "a constant of its module": lambda: in_module("G = 2\ndef scale(g): return g * G").scale,
    "one set in one of two ways": lambda: (
        in_module(
            "try:\n    G = 2\nexcept ImportError:\n    G = 3\ndef scale(g): return g * G"
        ).scale
    ),
    "a constant default": lambda: lambda g, k=2: g * k,
    "functions of torch": lambda: lambda g: torch.nn.functional.relu(g) * torch.pi,
}


@pytest.mark.parametrize("body", BODIES[:2], ids=lambda each: each.__name__)
@pytest.mark.parametrize("way", SETTLED)
def test_what_nothing_sets_again_stays_in_the_graph(capture, backend, same, way, body):
    run = body(SETTLED[way]())
    expected = derivative_after(run, lambda: None)
    same(derivative_after(capture(run, nopython=True), lambda: None), expected)
    assert len(backend) == 1
