"""Fixtures: eager as the oracle of a compiled program."""

import copy
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch


def clone_input(value: Any, leaves: list[torch.Tensor]) -> Any:
    """A fresh tensor of the same values, strides and history kind; its leaf is noted."""
    if not isinstance(value, torch.Tensor):
        return value
    fresh = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    fresh.copy_(value.detach())
    if value.requires_grad:
        fresh.requires_grad_(True)
        leaves.append(fresh)
        if not value.is_leaf:
            return fresh.clone(memory_format=torch.preserve_format)
    return fresh


def same_tensor(expected: torch.Tensor, given: torch.Tensor, exact: bool) -> None:
    assert expected.dtype == given.dtype
    assert expected.shape == given.shape
    for size, one, other in zip(expected.shape, expected.stride(), given.stride()):
        assert size <= 1 or expected.numel() == 0 or one == other, "strides differ"
    if exact:
        assert torch.equal(torch.nan_to_num(expected), torch.nan_to_num(given))
    else:
        torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)


def sharing(values: list[Any]) -> list[tuple[int, int]]:
    """Which of these tensors share memory."""
    keys = [
        value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else None
        for value in values
    ]
    return [
        (one, other)
        for one in range(len(keys))
        for other in range(one)
        if keys[one] is not None and keys[one] == keys[other] and values[one].numel()
    ]


def flat(value: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(value)


@pytest.fixture
def same_as_eager() -> Callable[..., aot.Compiled]:
    """Check a function against eager: results, aliases, mutations, gradients, flags."""

    def check(
        fn: Callable[..., Any],
        *inputs: Any,
        seed: int = 0,
        exact: bool = True,
        calls: int = 2,
        **options: Any,
    ) -> aot.Compiled:
        compiled = aot.aot_function(fn, options.pop("compiler", aot.run_as_is), **options)
        for _ in range(calls):
            leaves: list[torch.Tensor] = []
            twins: list[torch.Tensor] = []
            first, second = fresh_inputs(inputs, leaves), fresh_inputs(inputs, twins)
            torch.manual_seed(seed)
            expected = fn(*first)
            torch.manual_seed(seed)
            given = compiled(*second)
            one, other = flat(expected), flat(given)
            assert len(one) == len(other)
            assert sharing([*first, *one]) == sharing([*second, *other])
            for left, right in zip([*first, *one], [*second, *other]):
                if not isinstance(left, torch.Tensor):
                    assert left == right or left is right
                    continue
                same_tensor(left.detach(), right.detach(), exact)
                assert left.requires_grad == right.requires_grad
            assert [any(item is x for x in first) for item in one] == [
                any(item is x for x in second) for item in other
            ]
            same_gradients(leaves, [*first, *one], twins, [*second, *other])
        (entry,) = compiled.compiled.values()
        return entry

    return check


def fresh_inputs(inputs: tuple[Any, ...], leaves: list[torch.Tensor]) -> list[Any]:
    known: dict[int, Any] = {}
    for item in inputs:
        if id(item) not in known:
            known[id(item)] = clone_input(item, leaves)
    return [known[id(item)] for item in inputs]


def same_gradients(
    leaves: list[torch.Tensor], one: list[Any], twins: list[torch.Tensor], other: list[Any]
) -> None:
    def loss(values: list[Any]) -> torch.Tensor | None:
        terms = [
            (item * torch.arange(item.numel()).reshape(item.shape).cos()).sum()
            for item in values
            if isinstance(item, torch.Tensor) and item.requires_grad and item.is_floating_point()
        ]
        return sum(terms) if terms else None  # type: ignore[return-value]

    expected, given = loss(one), loss(other)
    assert (expected is None) == (given is None)
    if expected is None or given is None or not expected.requires_grad:
        return
    left = torch.autograd.grad(expected, leaves, allow_unused=True)
    right = torch.autograd.grad(given, twins, allow_unused=True)
    for want, got in zip(left, right):
        assert (want is None) == (got is None)
        if want is not None:
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.fixture
def same_module_as_eager() -> Callable[..., aot.Compiled]:
    """Train a module three steps beside its compiled twin: outputs, gradients, buffers."""

    def check(
        module: torch.nn.Module, *inputs: torch.Tensor, exact: bool = True, **options: Any
    ) -> aot.Compiled:
        twin = copy.deepcopy(module)
        compiled = aot.aot_module(twin, aot.run_as_is, **options)
        for step in range(3):
            torch.manual_seed(step)
            expected = module(*inputs)
            torch.manual_seed(step)
            given = compiled(*inputs)
            same_tensor(expected.detach(), given.detach(), exact)
            expected.square().mean().backward()
            given.square().mean().backward()
            for left, right in zip(module.parameters(), twin.parameters()):
                assert (left.grad is None) == (right.grad is None)
                if left.grad is not None:
                    torch.testing.assert_close(right.grad, left.grad, rtol=1e-4, atol=1e-5)
            with torch.no_grad():
                for left, right in zip(module.parameters(), twin.parameters()):
                    if left.grad is not None:
                        left -= 0.05 * left.grad
                        right -= 0.05 * right.grad
            for left, right in zip(module.buffers(), twin.buffers()):
                torch.testing.assert_close(right, left, rtol=1e-5, atol=1e-6)
        (entry,) = compiled.compiled.values()
        return entry

    return check
