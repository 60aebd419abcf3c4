"""Calls of what `typing` and `types` make of a class: an instance, which knows its alias, or a
refusal."""
# ruff: noqa: UP006

import typing
from collections import OrderedDict

import pytest
import torch

T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, *given):
        self.given = given


class Slotted(typing.Generic[T]):
    __slots__ = ("given",)


ALIASES = {
    "generic class": Box[int], "generic class of a variable": Box[T], "slots": Slotted[int],
    "list": list[int], "dict": dict[str, int], "typing's list": typing.List[int],
    "typing's dict": typing.Dict[str, int], "bare": typing.Dict, "type": typing.Type[int],
    "ordered": typing.OrderedDict[str, int], "plain ordered": OrderedDict[str, int],
}  # fmt: skip


@pytest.mark.parametrize("alias", ALIASES)
def test_a_call_of_an_alias_is_its_class_s(alias, check):
    kind = ALIASES[alias]

    def f(t):
        t = t + 1
        try:
            made = kind()
        except TypeError as error:
            return t, str(error)
        return t, type(made) is kind.__origin__, getattr(made, "__orig_class__", None) == kind

    check(f, torch.ones(2))
