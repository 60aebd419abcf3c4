"""Every method that writes in place and every operator of ATen behind it, given tensors, tensors of
one element and numbers of Python's: eager's values and gradients, or a refusal by name."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch

# What draws, what changes more than the elements, and what no operator of ATen is.
_DRAWS = ("random", "normal", "uniform", "exponential", "cauchy", "log_normal", "geometric")
_OTHERS = ("bernoulli", "dropout", "rrelu", "set", "resize", "resize_as", "as_strided", "detach")
APART = {f"{name}_" for name in (*_DRAWS, *_OTHERS, "requires_grad", "sparse_resize", "rename")}
METHODS = sorted(
    name
    for name in dir(torch.Tensor)
    if name.endswith("_") and not name.startswith("_") and not name.endswith("__")
    if hasattr(torch.ops.aten, name) and name not in APART
)
BY_TYPE: dict[str, tuple[Any, ...]] = {
    "Tensor": (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.tensor([[0, 1], [1, 0]]), 2.5),
    "number": (1.5,),
    "int": (1,),
    "float": (1.5,),
    "bool": (True,),
    "str": ("sum",),
}


def calls(name: str) -> Iterator[tuple[Any, ...]]:
    """The arguments behind the first, by the schemas of the operator."""
    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        asked = getattr(packet, overload)._schema.arguments[1:]
        needed = [x for x in asked if not x.kwarg_only and not x.has_default_value()]
        if all(str(x.type) in BY_TYPE for x in needed):
            yield from itertools.product(*(BY_TYPE[str(x.type)] for x in needed))


def outcome(fn: Any, grad: bool, tensors: list[torch.Tensor]) -> Any:
    x = torch.tensor([[0.25, 0.5], [0.75, 0.125]], requires_grad=grad)
    stage = "call"
    try:
        result = fn(x, *(t.clone() for t in tensors))
        stage = "backward"
        if result.requires_grad:
            result.sum().backward()
    except Exception as error:
        return stage, error
    return result.detach(), x.grad


def same(found: Any, expected: Any) -> bool:
    return all(
        (x is None) == (y is None) and (x is None or torch.allclose(x, y, equal_nan=True))
        for x, y in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize(("decomposed", "grad"), [(False, False), (False, True), (True, False)])
def test_as_eager_or_refused(decomposed: bool, grad: bool) -> None:
    table = flambeau_prims.decompositions() if decomposed else None
    answered, wrong = set(), []
    for name in METHODS:
        for given in calls(name):

            def fn(x: torch.Tensor, *tensors: torch.Tensor, name=name, given=given) -> Any:
                y, rest = x * 1, iter(tensors)
                own = [next(rest) if isinstance(item, torch.Tensor) else item for item in given]
                getattr(y, name)(*own)
                return y * 1

            tensors = [item for item in given if isinstance(item, torch.Tensor)]
            expected = outcome(fn, grad, tensors)
            found = outcome(
                aot.aot_function(fn, aot.run_as_is, decompositions=table), grad, tensors
            )
            if isinstance(found[1], Exception):
                refused = isinstance(found[1], aot.Unsupported)
                if not refused and not isinstance(expected[1], Exception):
                    wrong.append((name, given, found[1]))
                continue
            if isinstance(expected[1], Exception):
                # Decompositions are of calls that torch's own kernels allow: capture has asked.
                if not decomposed:
                    wrong.append((name, given, "answers", expected[1]))
                continue
            answered.add(name)
            if not same(found, expected):
                wrong.append((name, given, found, expected))
    assert not wrong
    assert {"copy_", "polygamma_", "add_", "heaviside_" if not grad else "mul_"} <= answered


DTYPES = (torch.bool, torch.int32, torch.bfloat16, torch.float32, torch.complex64)


def dtypes_and_forms() -> list[tuple[torch.dtype, torch.dtype, bool]]:
    """Any two of them together; all three with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`)."""
    whole = os.environ.get("FLAMBEAU_SWEEPS") == "1"
    return [
        (own, other, in_place)
        for (i, own), (j, other) in itertools.product(enumerate(DTYPES), enumerate(DTYPES[::2]))
        for in_place in (True, False)
        if whole or in_place == ((i + j) % 2 == 0)
    ]


@pytest.mark.sweep(15)
@pytest.mark.parametrize(("own", "other", "in_place"), dtypes_and_forms())
def test_dtypes_that_eager_refuses_are_refused(
    own: torch.dtype, other: torch.dtype, in_place: bool
) -> None:
    """The result's dtype does not fit what is written to, or no kernel takes the operands'."""
    table, wrong, refused = flambeau_prims.decompositions(), [], 0
    for name in METHODS:
        called = name if in_place or not hasattr(torch.Tensor, name[:-1]) else name[:-1]
        for given in calls(name):

            def fn(x: torch.Tensor, called=called, given=given) -> torch.Tensor:
                y = x.to(own)
                result = getattr(y, called)(*(_of(item, other) for item in given))
                return y if in_place else result

            x = torch.tensor([[1.0, 2.0], [3.0, 1.0]])
            try:
                expected = fn(x)
            except Exception as error:
                expected = error
            try:
                found = aot.aot_function(fn, aot.run_as_is, decompositions=table)(x)
            except Exception as error:
                found = error
            if isinstance(expected, Exception):
                if not in_place and "imension" in str(expected):
                    continue  # a shape
                refused += 1
                if not isinstance(found, Exception):
                    wrong.append((name, given, str(expected)))
            elif isinstance(found, Exception) and not isinstance(found, aot.Unsupported):
                wrong.append((name, given, found))
    assert not wrong, wrong
    assert refused


def _of(item: Any, dtype: torch.dtype) -> Any:
    floating = isinstance(item, torch.Tensor) and item.is_floating_point()
    return item.to(dtype) if floating else (1j if dtype.is_complex and item == 1.5 else item)


def test_what_eager_refuses_is_refused() -> None:
    """A result that the target's dtype cannot keep, a derivative that there is not."""
    whole = torch.ones(3, dtype=torch.int64)
    with pytest.raises(aot.Unsupported, match="as eager says"):
        aot.aot_function(lambda x: (x * 1).polygamma_(1), aot.run_as_is)(whole)
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(aot.Unsupported, match="backward part raises"):
        aot.aot_function(lambda x: torch.heaviside(x * 1, x), aot.run_as_is)(x)


class OfOneAlone(torch.autograd.Function):
    """Of its two inputs, the second gets no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None


@pytest.mark.parametrize("hook", [lambda g: g * 3, lambda g: g[9], lambda g: torch.ones(7) + g])
def test_a_hook_that_raises_is_refused(hook: Callable[..., Any]) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        other = w * 2
        other.register_hook(hook)
        result: torch.Tensor = OfOneAlone.apply(x, other)
        return result

    x, w = (torch.ones(3, requires_grad=True) for _ in range(2))
    with pytest.raises(TypeError):
        fn(x, w).sum().backward()
    with pytest.raises(aot.Unsupported, match="backward part raises"):
        aot.aot_function(fn, aot.run_as_is)(x, w)


def test_a_defect_is_no_refusal() -> None:
    def within(error: BaseException, module: str) -> BaseException:
        source = "def fail(error):\n    raise error\n"
        scope: dict[str, Any] = {"__name__": module}
        exec(source, scope)
        try:
            scope["fail"](error)
        except BaseException as caught:
            return caught
        raise AssertionError

    is_refusal = aot.errors.is_refusal
    assert is_refusal(within(RuntimeError("expected 3 elements"), "torch._ops"))
    assert is_refusal(within(ValueError("two dimensions"), "model"))
    assert not is_refusal(within(ValueError("two dimensions"), "flambeau_prims.decomp"))
    assert not is_refusal(within(RuntimeError("x INTERNAL ASSERT FAILED"), "torch._ops"))
    for by_python in ("generator raised StopIteration", "Set changed size during iteration"):
        assert is_refusal(within(RuntimeError(by_python), "model"))
        assert not is_refusal(within(RuntimeError(by_python), "flambeau_aot.joint.dispatch_mode"))
    assert not is_refusal(within(AttributeError("no attribute"), "model"))
    assert not is_refusal(within(KeyError("name"), "model"))


SIZES = ((1, 4), (4, 1), (1, 0, 3), (2, 1, 3), (1, 1), (1,), (), (2, 3, 1, 2))
ORDERS: dict[str, Callable[[tuple[int, ...]], torch.Tensor]] = {
    "turned": lambda sizes: torch.rand(sizes[::-1]).permute([*range(len(sizes))][::-1]),
    "cut": lambda sizes: torch.rand([n + 1 for n in sizes])[tuple(slice(n) for n in sizes)],
    "repeated": lambda sizes: torch.rand((*sizes[:-1], 1)[: len(sizes)]).expand(sizes),
    "odd": lambda sizes: torch.rand(99).as_strided(sizes, [7 if n == 1 else 1 for n in sizes]),
}
FRESH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a copy": torch.clone,
    "a sum": lambda x: x + x,
    "a view of a copy": lambda x: x.clone()[None].squeeze(0),
}


@pytest.mark.parametrize("decomposed", [False, True])
def test_what_is_written_to_keeps_its_strides(decomposed: bool) -> None:
    """Whatever the operator's functional form makes; in dimensions of size 1 and 0 as in others."""
    table = flambeau_prims.decompositions() if decomposed else None
    cases = list(itertools.product(ORDERS, SIZES, FRESH))
    few = 12 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 1
    wrong, compared = [], set()
    for name in METHODS:
        draw = random.Random(name)
        for given in calls(name):
            for order, sizes, fresh in draw.sample(cases, few):
                x = ORDERS[order](sizes)
                own = [_of_sizes(item, sizes) for item in given]

                def fn(x: torch.Tensor, name=name, own=own, fresh=fresh) -> torch.Tensor:
                    y = FRESH[fresh](x)
                    getattr(y, name)(*own)
                    return y

                try:
                    expected = fn(x)
                except Exception:  # noqa: S112 - of matrices alone, of whole numbers
                    continue
                try:
                    found = aot.aot_function(fn, aot.run_as_is, decompositions=table)(x)
                except aot.Unsupported:
                    continue
                compared.add(name)
                same = torch.allclose(found, expected, equal_nan=True)
                if not same or found.stride() != expected.stride():
                    wrong.append((name, order, sizes, fresh, found.stride(), expected.stride()))
    assert not wrong
    assert len(compared) > len(METHODS) / 2


def _of_sizes(item: Any, sizes: tuple[int, ...]) -> Any:
    if not isinstance(item, torch.Tensor):
        return item
    return torch.full(sizes, 1.5) if item.is_floating_point() else torch.zeros(sizes, dtype=int)
