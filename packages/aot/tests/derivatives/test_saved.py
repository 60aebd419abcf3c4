"""Programs as data: what is written is read again, and runs as before."""

from __future__ import annotations

import json
import math

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.serialize.saved_program import (
    CLASSES,
    CannotSave,
    Stored,
    decoded,
    encoded,
    restore,
    stored_from,
)
from torch import fx


def captured(fn, *attributes):
    """A graph as capture makes it: its tensors are attributes."""
    return fx.symbolic_trace(fn)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, 3))

    def forward(self, x, y):
        z = torch.tanh(x @ self.weight) * y
        return z.sum(), z.t(), x, y.view(-1)


def graph():
    return fx.symbolic_trace(Scaled())


def through_json(stored: Stored) -> Stored:
    return stored_from(json.loads(json.dumps(stored.data())), stored.constants)


def halves(compiled_with):
    """A graph compiler that runs graphs as they are and remembers them."""

    def compiler(gm, inputs, info):
        compiled_with.append(aot.run_as_is(gm, inputs, info))
        return compiled_with[-1]

    return compiler


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -0.0, 1.5, "text", 2 + 3j, (1, (2, None)), [1, "a"], {"a": (1,), 2: [3]},
        frozenset({3, 1}), slice(1, None, 2), torch.float32, torch.device("cuda:1"),
        torch.strided, torch.channels_last, torch.ops.aten.view.default, torch.Size([2, 3]),
    ],
)  # fmt: skip
def test_values_are_read_as_they_were_written(value):
    again = decoded(json.loads(json.dumps(encoded(value))))
    assert again == value and repr(again).replace("torch.Size([2, 3])", "(2, 3)") == repr(
        value
    ).replace("torch.Size([2, 3])", "(2, 3)")


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinities(value):
    assert decoded(json.loads(json.dumps(encoded(value), allow_nan=False))) == value


def test_not_a_number():
    assert math.isnan(decoded(json.loads(json.dumps(encoded(math.nan), allow_nan=False))))


@pytest.mark.parametrize("value", [object(), torch.randn(2), lambda: 1, torch.Generator()])
def test_what_has_no_form_is_named(value):
    with pytest.raises(CannotSave, match=type(value).__name__):
        encoded((1, [value]))


def test_names_that_are_not_in_the_table_are_not_looked_up():
    for data in ({"class": "Popen", "fields": {}}, {"operator": "os.system.x"}, {"dtype": "load"}):
        with pytest.raises(LookupError):
            decoded(data)
    assert all(cls.__dataclass_params__.frozen for cls in CLASSES.values())


@pytest.mark.parametrize("grad", [False, True])
def test_a_restored_program_gives_the_same(grad):
    gm, made = graph(), []
    x, y = torch.randn(2, 3, requires_grad=grad), torch.randn(2, 3)
    with torch.set_grad_enabled(grad):
        compiled = aot.compile(gm, [x, y], halves(made))
        stored = through_json(compiled.stored)
        again = restore(stored, aot.static_tensors(gm), *made)
        expected, got = gm(x, y), again(x, y)
        assert got[2] is x and got[3]._base is not None
        torch.testing.assert_close(got, expected)
    if grad:
        for out in (expected, got):
            gm.weight.grad = x.grad = None
            (out[0] * 3 + out[1].square().sum()).backward()
            if out is expected:
                wanted = (gm.weight.grad.clone(), x.grad.clone())
        torch.testing.assert_close((gm.weight.grad, x.grad), wanted)


def test_inputs_that_are_written_to():
    def fn(x, y):
        x.add_(y)
        return x * 2, x[1:]

    gm, made = captured(fn), []
    with torch.no_grad():
        compiled = aot.compile(gm, [torch.ones(3), torch.ones(3)], halves(made))
        again = restore(through_json(compiled.stored), (), *made)
        x, reference = torch.ones(3), torch.ones(3)
        torch.testing.assert_close(again(x, torch.ones(3)), fn(reference, torch.ones(3)))
        torch.testing.assert_close(x, reference)


def test_constants_of_the_program_come_with_it():
    def fn(x):
        return x + torch.tensor([1.0, 2.0])

    made = []
    compiled = aot.aot_function(fn, halves(made))
    compiled(torch.ones(2))
    (entry,) = compiled.compiled.values()
    again = restore(through_json(entry.stored), (), *made)
    torch.testing.assert_close(again(torch.ones(2)), torch.tensor([2.0, 3.0]))


def test_a_derivative_of_second_order_compiles_what_it_needs():
    gm, made, times = graph(), [], []
    x, y = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    compiled = aot.compile(gm, [x, y], halves(made))
    stored = through_json(compiled.stored)

    def recompile(inputs):
        times.append(1)
        return aot.compile(gm, inputs, aot.run_as_is)

    again = aot.restore_graph(stored, gm, [x, y], made[0], made[1], recompile)

    def second(fn):
        (first,) = torch.autograd.grad(fn(x, y)[0], x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    assert times == []
    torch.testing.assert_close(second(again), second(gm))
    torch.testing.assert_close(second(again), second(gm))
    assert times == [1]


def test_without_its_source_a_second_derivative_is_refused():
    gm, made = graph(), []
    x, y = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    compiled = aot.compile(gm, [x, y], halves(made))
    again = restore(through_json(compiled.stored), aot.static_tensors(gm), *made)
    with pytest.raises(aot.DoubleBackwardError, match="without its source"):
        torch.autograd.grad(again(x, y)[0], x, create_graph=True)


def test_another_number_of_weights_is_refused():
    gm, made = graph(), []
    with torch.no_grad():
        compiled = aot.compile(gm, [torch.randn(2, 3), torch.randn(2, 3)], halves(made))
    with pytest.raises(aot.AotError, match="has 1 parameters and buffers, given are 0"):
        restore(compiled.stored, (), *made)


@pytest.mark.parametrize("data", [{}, {"plan": 3}, {"plan": {"class": "Nothing", "fields": {}}}])
def test_data_of_another_form(data):
    with pytest.raises(aot.AotError, match="not a stored program"):
        stored_from(data, ())
