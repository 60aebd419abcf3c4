"""Backward passes without `retain_graph` after one that went through the same nodes: eager raises
where something kept was freed, and goes on where nothing was. Generated: functions that keep and
that do not, alone and in pairs, each order of passes from one result, from the other, from both."""

from __future__ import annotations

import itertools

import pytest
import torch

import flambeau


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Viewing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class Saving(Plain):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


class Keeping(Plain):
    """On its context, past autograd."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.x


FUNCTIONS = {
    "plain": Plain.apply, "viewing": Viewing.apply, "saving": Saving.apply,
    "keeping": Keeping.apply, "add": lambda x: x + 1, "scaled": lambda x: x * 2,
    "square": lambda x: x * x, "sum": lambda x: x.sum(0),
    "masked": lambda x: x.masked_fill(x > 2, 0),
}  # fmt: skip
PAIRS = [*itertools.combinations(FUNCTIONS, 2), *((name, name) for name in FUNCTIONS)]
PASSES = [(0, 0), (0, 1), (2, 0), (2, 1), (0, 2), (2, 2), (0, 1, 2)]


def outcome(fn, passes, create_graph=False):
    x, y = (torch.arange(1.0, 4) * n for n in (1, 2))
    results = fn(x.requires_grad_(), y.requires_grad_())
    found = []
    for each in passes:
        chosen = results if each == 2 else results[each : each + 1]
        try:
            loss = sum(result.sum() for result in chosen)
            loss.backward(retain_graph=False, create_graph=create_graph)
        except RuntimeError as error:
            return [*found, str(error)[:30]]
        found.append([None if t.grad is None else t.grad.tolist() for t in (x, y)])
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_passes_again(pair, backend, create_graph):
    first, second = (FUNCTIONS[name] for name in pair)

    def fn(x, y):
        return first(x), second(y)

    compiled = flambeau.compile(fn, backend=backend)
    for passes in PASSES:
        found, expected = (outcome(each, passes, create_graph) for each in (compiled, fn))
        assert found == expected, passes


KINDS = {
    "grad": {},
    "kept": {"retain_graph": True},
    "freed": {"retain_graph": False, "create_graph": True},
    "differentiated": {"create_graph": True},
}


def derived(loss, inputs, kind):
    """A pass: one that accumulates, or one by these inputs."""
    if inputs is None:
        loss.sum().backward(retain_graph=KINDS[kind].get("retain_graph"))
        return []
    found = torch.autograd.grad(loss.sum(), inputs, allow_unused=True, **KINDS[kind])
    return [None if each is None else each.detach() for each in found]


def outcome_inside(fn, passes):
    """What a function with passes of its own gives, and passes from its results after it."""
    x, y = (torch.arange(1.0, 4) * n for n in (1, 2))
    leaves = x.requires_grad_(), y.requires_grad_()
    try:
        found, results = fn(*leaves)
    except RuntimeError as error:
        return str(error)[:30]
    found = [None if each is None else each.tolist() for each in found]
    for place, kind in passes:
        try:
            results[place].sum().backward(**KINDS[kind])
        except RuntimeError as error:
            return [*found, str(error)[:30]]
        found.append([None if t.grad is None else t.grad.tolist() for t in leaves])
    return found


INSIDE = [*itertools.product((0, 1), ("x", "h", "leaves"), KINDS)]
SEVERAL = [*((one,) for one in INSIDE), *itertools.product(INSIDE[::3], INSIDE[1::5])]
OUTSIDE = [((0, "grad"),), ((1, "grad"),), ((1, "kept"), (0, "grad"), (1, "grad"))]
OUTSIDE += [((0, "freed"), (1, "grad")), ((1, "differentiated"), (0, "kept"), (1, "grad"))]


@pytest.mark.sweep(60)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("inside", SEVERAL, ids=lambda each: "-".join(map(str, sum(each, ()))))
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_passes_inside_of_the_function(pair, inside):
    """Passes of the function's own, one or two, from results that share the nodes of `h`."""
    first, second = (FUNCTIONS[name] for name in pair)

    def fn(x, y):
        h = first(x)
        results = second(h) + 0, h * y
        found = []
        for place, by, kind in inside:
            inputs = {"x": [x, y], "h": [h], "leaves": None}[by]
            found += derived(results[place], inputs, kind)
        return found, results

    compiled = flambeau.compile(fn, backend="aot_eager")
    for passes in OUTSIDE:
        assert outcome_inside(compiled, passes) == outcome_inside(fn, passes), passes


MAKES = {
    "computed": lambda x: x.sin(), "written": lambda x: (x * 1).mul_(2), "the leaf": lambda x: x,
    "a part": lambda x: (x * x)[:2], "kept as a result": lambda x: x.exp(),
}  # fmt: skip


def cubed(w):
    return (w * w.cos()).sum()


def by_inputs(x, v, w):
    cubed(w).backward(create_graph=True, inputs=[x])
    return x.grad


def by_the_inner(x, v, w):
    cubed(w).backward(create_graph=True, inputs=[v])
    return v.grad


def retained(x, v, w):
    v.retain_grad()
    cubed(w).backward(create_graph=True)
    return v.grad


def twice(x, v, w):
    cubed(w).backward(create_graph=True)
    w.sum().backward(create_graph=True)
    return x.grad


def of_two(x, v, w):
    torch.autograd.backward([cubed(w), v.sum()], create_graph=True)
    return x.grad


def taken(x, v, w):
    cubed(w).backward(create_graph=True)
    found, x.grad = x.grad, None
    return found


def penalty(x, v, w):
    cubed(w).backward(create_graph=True)
    return x.grad.square().sum()


def second(x, v, w):
    cubed(w).backward(create_graph=True)
    found, x.grad = x.grad, None
    found.sum().backward(create_graph=True)
    return x.grad


ASKS = [by_inputs, by_the_inner, retained, twice, of_two, taken, penalty, second]
AFTER = {
    "nothing": lambda r: [],
    "the gradient": lambda r: r[0].sum().backward(retain_graph=True),
    "the result": lambda r: r[1].sum().backward(retain_graph=True),
    "both at once": lambda r: (r[0].sum() + r[1].sum()).backward(),
    "both": lambda r: [r[1].sum().backward(retain_graph=True), r[0].sum().backward()],
    "both, freed": lambda r: [r[0].sum().backward(), r[1].sum().backward()],
    "by the result": lambda r: torch.autograd.grad(r[0].sum(), r[1], allow_unused=True),
    "the inner": lambda r: r[2].sum().backward(),
}


def outcome_after(fn, after):
    x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    try:
        results = fn(x)
        found = after(results) or []
    except RuntimeError as error:
        return str(error)[:30]
    values = [*results, *(t for t in found if isinstance(t, torch.Tensor)), x.grad]
    return [None if t is None else (t.requires_grad, *t.detach().view(-1).tolist()) for t in values]


@pytest.mark.sweep(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ask", ASKS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("make", MAKES)
def test_gradients_that_are_differentiated_after_the_function(make, ask):
    """A pass inside that makes a graph of its own, and passes through that from outside."""

    def fn(x):
        v = MAKES[make](x)
        w = v * v
        return ask(x, v, w), w, v

    compiled = flambeau.compile(fn, backend="aot_eager")
    for name, after in AFTER.items():
        if ask is second and name == "by the result":
            continue  # a derivative of third order by a result is None: the graph of its own
        expected, found = outcome_after(fn, after), outcome_after(compiled, after)
        if isinstance(expected, str):
            assert found == expected, name
            continue
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours is None) == (theirs is None), name
            assert ours is None or ours == pytest.approx(theirs, rel=1e-4, abs=1e-4), name
