"""Signatures bound to tensors, and what else libraries ask of callables and annotations."""

import inspect
import typing

import pytest
import torch

CALLS = [
    ((1,), {}), ((1, 2), {}), ((1,), {"b": 2}), ((1, 2, 3, 4), {"c": 5}), ((), {"a": 1, "z": 9}),
    ((1,), {"c": 5, "z": 9}), ((), {}), ((1,), {"a": 2}), ((1, 2, 3), {"b": 4}),
]  # fmt: skip


def everything(a, b=2, *rest, c=3, **more):
    return a


def two(a, b):
    return a


def by_place(a, b=1, /):
    return a


@pytest.mark.parametrize("how", ["bind", "bind_partial"])
@pytest.mark.parametrize("function", [everything, two, by_place])
def test_a_signature_binds_tensors(capture, same, function, how):
    signature = inspect.signature(function)

    def step(x, args, named):
        given = [x * each for each in args], {name: x + each for name, each in named.items()}
        try:
            bound = getattr(signature, how)(*given[0], **given[1])
        except TypeError as error:
            return x, str(error)
        before = dict(bound.arguments)
        bound.apply_defaults()
        return x, before, dict(bound.arguments), bound.args, bound.kwargs

    for args, named in CALLS:
        x = torch.ones(2)
        same(capture(step)(x, args, named), step(x, args, named), (function, args, named))


class Made:
    def __init__(self, factor):
        self.factor = factor


def test_an_instance_makes_another_without_its_init(capture, backend):
    kept = Made(2)

    def step(x):
        made = kept.__new__(type(kept))
        made.factor = 3
        return x * made.factor * hasattr(kept.__new__(Made), "factor"), made

    found, made = capture(step)(torch.ones(2))
    assert torch.equal(found, torch.zeros(2)) and type(made) is Made and made.factor == 3
    assert len(backend) == 1


ALIASES = [
    typing.Union[int, torch.Tensor], typing.Optional[int], typing.List[int], typing.Any,  # noqa: UP006, UP007, UP045
    list[int], int | str,
]  # fmt: skip


def test_annotations_are_compared_as_typing_does(capture, backend):
    def step(x, one, other):
        return x + 1, one == other, one != other, one == "Tensor", hash(one) == hash(other)

    for one in ALIASES:
        for other in ALIASES:
            x = torch.ones(2)
            assert capture(step)(x, one, other)[1:] == step(x, one, other)[1:]


def test_modes_are_asked_about(capture):
    def step(x):
        found = [torch._C._is_torch_function_mode_enabled()]
        with torch.device("cpu"):
            found += [torch._C._is_torch_function_mode_enabled()]
        return x + 1, found, torch._C._is_torch_function_mode_enabled()

    compiled, x = capture(step), torch.ones(2)
    for _ in range(2):
        assert compiled(x)[1:] == step(x)[1:]
        with torch.device("cpu"):
            assert compiled(x)[1:] == step(x)[1:]
