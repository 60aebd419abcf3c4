"""Tensor subclasses that flatten: inputs, parameters, results and gradients as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.utils import _pytree as pytree


class Pair(torch.Tensor):
    """Two tensors on which everything is done; `scale` is context."""

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor, scale: float = 1.0) -> Pair:
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device
        )

    def __init__(self, a: torch.Tensor, b: torch.Tensor, scale: float = 1.0) -> None:
        self.a, self.b, self.scale = a, b, scale

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["a", "b"], self.scale

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Pair:
        return Pair(inner["a"], inner["b"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        pairs = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, Pair)]
        results = []
        for name in ("a", "b"):
            own, named = pytree.tree_map(
                lambda x, name=name: getattr(x, name) if isinstance(x, Pair) else x,
                (args, kwargs or {}),
            )
            results.append(func(*own, **named))
        if func in (torch.ops.aten.mul_.Tensor, torch.ops.aten.copy_.default):
            return args[0]

        def both(one: Any, other: Any) -> Any:
            return Pair(one, other, pairs[0].scale) if isinstance(one, torch.Tensor) else one

        return pytree.tree_map(both, *results)


def pair(seed: int, grad: bool = True, scale: float = 1.0) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    parts = [torch.randn(3, 3, generator=generator) for _ in range(2)]
    return Pair(*parts, scale).requires_grad_(grad)


def same(given: Any, expected: Any) -> None:
    assert type(given) is type(expected)
    if isinstance(given, Pair):
        assert given.scale == expected.scale
        for name in ("a", "b"):
            same(getattr(given, name), getattr(expected, name))
    elif expected is not None:
        torch.testing.assert_close(given, expected)


def chain(x: Pair, y: Pair) -> Any:
    return (x * 2).sin() @ y + x


def mixed(x: Pair, y: torch.Tensor) -> Any:
    return (x @ y.sin()).tanh() * y


def several(x: Pair, y: torch.Tensor) -> Any:
    return {"pair": x.exp(), "plain": y.cos(), "same": x, "none": None}


@pytest.mark.parametrize("program", [chain, mixed, several], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("grad", [True, False])
def test_as_eager(program: Callable[..., Any], grad: bool) -> None:
    compiled = aot.aot_function(program, aot.run_as_is)
    for seed in (0, 1):
        seen = []
        for call in (program, compiled):
            x = pair(seed, grad)
            y: Any = (
                pair(7, grad)
                if program is chain
                else torch.ones(3, 3).requires_grad_(grad and program is several)
            )
            results = call(x, y)
            leaves = pytree.tree_leaves(results)
            if grad:
                ends = [leaf for leaf in leaves if leaf is not None and leaf is not x]
                torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])
            same_object = [leaf is x for leaf in leaves]
            values = [pytree.tree_map(lambda t: t.detach(), r) for r in leaves if r is not None]
            seen.append((values, same_object, x.grad, y.grad))
        (expected, own, *grads), (given, also, *given_grads) = seen
        assert own == also
        for one, other in zip([*given, *given_grads], [*expected, *grads], strict=True):
            same(one, other)
    assert len(compiled.compiled) == 1


def test_the_graph_is_of_plain_tensors() -> None:
    compiled: Any = aot.aot_function(chain, aot.run_as_is)
    compiled(pair(0), pair(1))
    (entry,) = compiled.compiled.values()
    assert len(entry.joint.primals) == 4
    kinds = {type(node.meta["val"]).__name__ for node in entry.joint.graph.nodes}
    assert kinds == {"FakeTensor"}
    assert sum("mm" in str(node.target) for node in entry.forward.graph.nodes) == 2


def test_another_context_is_another_compile() -> None:
    compiled: Any = aot.aot_function(lambda x: x.sin(), aot.run_as_is)
    assert compiled(pair(0, scale=1.0)).scale == 1.0
    assert compiled(pair(0, scale=2.0)).scale == 2.0
    assert len(compiled.compiled) == 2


def test_a_parameter() -> None:
    seen = []
    for wrap in (lambda module: module, lambda module: aot.aot_module(module, aot.run_as_is)):
        module = torch.nn.Linear(3, 3, bias=False)
        module.weight = torch.nn.Parameter(pair(3))
        call: Any = wrap(module)
        out = call(torch.ones(2, 3))
        out.backward(torch.ones_like(out))
        seen.append((out.detach(), module.weight.grad))
    for one, other in zip(*seen, strict=True):
        same(other, one)


def written(x: Pair, y: torch.Tensor) -> Any:
    x.mul_(2)
    return x.sin(), y + 1


def written_and_returned(x: Pair, y: torch.Tensor) -> Any:
    z = x * 3
    x.mul_(z)
    return x, z.cos()


def written_unrecorded(x: Pair, y: torch.Tensor) -> Any:
    with torch.no_grad():
        x.mul_(0.5)
    return (x * y.sum()).exp()


@pytest.mark.parametrize(
    "program", [written, written_and_returned, written_unrecorded], ids=lambda fn: fn.__name__
)
@pytest.mark.parametrize("kind", ["plain", "part of a graph"])
def test_a_write_to_an_input(program: Callable[..., Any], kind: str) -> None:
    compiled: Any = aot.aot_function(program, aot.run_as_is)
    for seed in (0, 1):
        seen = []
        for call in (program, compiled):
            leaf = pair(seed, kind == "part of a graph")
            x = leaf * 1.5
            held, before, y = x, x._version, torch.ones(2, requires_grad=False)
            results = pytree.tree_leaves(call(x, y))
            ends = [item for item in (x, *results) if item.requires_grad]
            if ends:
                torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])
            assert held is x and x._version > before
            flags = [item.requires_grad for item in (x, *results)]
            values = [item.detach() for item in (x, *results)]
            seen.append((flags, [item is x for item in results], values, leaf.grad))
        (flags, own, *expected), (given_flags, also, *given) = seen
        assert (flags, own) == (given_flags, also)
        for one, other in zip([*given[0], given[1]], [*expected[0], expected[1]], strict=True):
            same(one, other)
    assert len(compiled.compiled) == 1


def one_part(x: Pair) -> Any:
    with torch.no_grad():
        x.a.mul_(0.5)
    return x * 2


def before_it_is_read(x: Pair) -> Any:
    with torch.no_grad():
        x.b.view(-1).add_(1)
    return x.sin() * x


@pytest.mark.parametrize("program", [one_part, before_it_is_read], ids=lambda fn: fn.__name__)
def test_a_write_to_a_part_that_autograd_does_not_record(program: Callable[..., Any]) -> None:
    """The parts are not kept for the gradient: writing to one is no error in the backward pass."""
    seen = []
    for call in (program, aot.aot_function(program, aot.run_as_is)):
        x = pair(3)
        result = call(x)
        result.backward(torch.ones_like(result))
        seen.append((x, result, x.grad))
    for found, expected in zip(*seen, strict=True):
        same(found, expected)


def test_refused_by_name() -> None:
    def write(x: Pair) -> Any:
        return x.mul_(2)

    for call in (write, aot.aot_function(write, aot.run_as_is)):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            call(pair(0))

    def other_parts(x: Pair) -> Any:
        x.mul_(2)
        x.a = x.a + 1
        return x * 1

    with pytest.raises(aot.Unsupported, match="other parts"):
        aot.aot_function(other_parts, aot.run_as_is)(pair(0, grad=False))
    with pytest.raises(aot.Unsupported, match="gradient of a plain tensor is a Pair"):
        aot.aot_function(mixed, aot.run_as_is)(pair(0), torch.ones(3, 3, requires_grad=True))


def test_there_is_no_second_derivative() -> None:
    x = pair(0)
    out = aot.aot_function(lambda v: v.sin(), aot.run_as_is)(x)
    with pytest.raises(aot.DoubleBackwardError, match="Pair"):
        torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)


def test_a_program_of_a_class_without_a_form_is_not_saved() -> None:
    compiled = aot.aot_function(chain, aot.run_as_is)
    compiled(pair(0), pair(7))
    (entry,) = compiled.compiled.values()
    with pytest.raises(aot.CannotSave, match="a tensor of the class Pair"):
        entry.stored.data()
    with pytest.raises(aot.AotError, match="restored with the graph"):
        aot.restore(entry.stored, (), torch.nn.Identity())
