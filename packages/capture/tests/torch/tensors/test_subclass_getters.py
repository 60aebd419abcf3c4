"""`__torch_function__` of a tensor's subclass is asked for every attribute that torch computes."""

import types

import pytest
import torch

GETTERS = sorted(
    name
    for name in dir(torch.Tensor)
    if isinstance(getattr(torch.Tensor, name), property | types.GetSetDescriptorType)
    and not name.startswith("__")
    and getattr(torch.Tensor, name).__get__ in torch.overrides.get_testing_overrides()
)


class Asked(torch.Tensor):
    """Answers what it is asked for instead of the attribute."""

    wanted = ""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func == getattr(torch.Tensor, cls.wanted).__get__:
            return 10
        return super().__torch_function__(func, types, args, kwargs or {})


def test_there_are_many_getters():
    assert len(GETTERS) > 30 and {"ndim", "shape", "dtype", "T", "grad", "is_leaf"} <= {*GETTERS}


@pytest.mark.parametrize("name", GETTERS)
def test_getter_is_asked(capture, name):
    kind = type("Asked", (Asked,), {"wanted": name})

    def fn(w):
        return getattr(w, name), torch.ones(2) + 1

    w = torch.ones(2, 2).as_subclass(kind)
    expected = fn(w)[0]
    assert expected == 10 or name.startswith("_")
    assert capture(fn)(w)[0] == expected


@pytest.mark.parametrize("name", GETTERS)
def test_getter_that_is_left_to_torch(capture, name):
    """One that answers for another attribute leaves this one as it is in eager."""
    kind = type("Asked", (Asked,), {"wanted": "T" if name != "T" else "mT"})

    def fn(w):
        try:
            return getattr(w, name)
        except RuntimeError as error:
            return type(error)

    w = torch.ones(2, 2).as_subclass(kind)
    expected, got = fn(w), capture(fn)(w)
    assert type(got) is type(expected)
    with torch._C.DisableTorchFunctionSubclass():
        same = torch.equal(got, expected) if isinstance(got, torch.Tensor) else got == expected
    assert same
