"""What a hook, or a function's derivative, reads of the program's state: eager reads it when the
body runs, after the forward pass. Generated: ways to read it times kinds of bodies, with a change
between the passes; and what nothing sets again, which stays in one graph."""

import functools
import sys
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


CONSTANTS = "class Base:\n    k = 2\nclass Own(Base):\n    def of(self, g): return g * self.k\n"
SCALE = "def scale(g): return g * Own.k\n"
SET_BY = {
    "an assignment": "def change(): Own.k = 5",
    "an assignment to its base": "def change(): Base.k = 5",
    "its own method": "class Set(Base):\n    @classmethod\n    def of(cls, k): cls.k = k\n"
    "def change(): Set.of.__func__(Own, 5)",
    "a loop": "def change():\n    for Own.k in (4, 5): pass",
    "setattr": "def change(): setattr(Own, 'k', 5)",
    "__setattr__": "def change(): type.__setattr__(Own, 'k', 5)",
    "a deletion": "Own.k = 7\ndef change(): del Own.k",
}


@pytest.fixture
def module_of(monkeypatch):
    def make(source):
        module = types.ModuleType(f"tests_constants_{len(source)}")
        code = compile(source, module.__name__, "exec")
        module.__loader__ = types.SimpleNamespace(get_code=lambda name: code)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(code, vars(module))
        return module

    return make


@pytest.mark.parametrize("body", BODIES[:2], ids=lambda each: each.__name__)
@pytest.mark.parametrize("way", SET_BY)
def test_a_constant_of_a_class_that_code_sets_is_read_when_it_runs(
    capture, same, module_of, way, body
):
    source = CONSTANTS + SCALE + SET_BY[way]
    theirs, ours = module_of(source), module_of(source + "\n")
    expected = derivative_after(body(theirs.scale), theirs.change)
    same(derivative_after(capture(body(ours.scale)), ours.change), expected)


@pytest.mark.parametrize("body", BODIES[:2], ids=lambda each: each.__name__)
def test_constants_of_classes_stay_in_the_graph_and_are_guarded(
    capture, backend, same, module_of, body
):
    module = module_of(CONSTANTS + SCALE)
    run = body(module.scale)
    ours = capture(run, nopython=True)
    for value in (2, 3, 2.5):
        type.__setattr__(module.Own, "k", value)
        same(derivative_after(ours, lambda: None), derivative_after(run, lambda: None))
    assert len(backend) >= 2
