"""What is written to `out` is laid out as `out` was: by operator of torch's registry."""

from __future__ import annotations

from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch import Tensor

SHAPE = (3, 5)


def pointwise() -> list[Any]:
    """Overloads that write one tensor, made of one or two tensors of the same shape."""
    found = []
    for name in sorted({s.name for s in torch._C._jit_get_all_schemas()}):
        library, _, own = name.partition("::")
        packet = getattr(torch.ops.aten, own, None) if library == "aten" else None
        for overload in [] if packet is None else packet.overloads():
            func = getattr(packet, overload)
            kinds = [str(argument.type) for argument in func._schema.arguments]
            named = func._schema.arguments[-1].name == "out" if kinds else False
            if named and set(kinds) == {"Tensor"} and 2 <= len(kinds) <= 3:
                if torch.Tag.pointwise in getattr(func, "tags", ()):
                    found.append(func)
    return found


OPERATORS = pointwise()


def test_there_are_many() -> None:
    assert len(OPERATORS) > 80


def outcome(call: Any, inputs: list[Tensor]) -> Any:
    try:
        result = call(*[x.clone() for x in inputs])
    except Exception as error:
        return type(error)
    return result, result.stride()


@pytest.mark.parametrize("func", OPERATORS[::3], ids=str)
def test_out_keeps_its_strides(func: Any) -> None:
    count = len(func._schema.arguments) - 1
    inputs = [torch.rand(SHAPE[::-1]).t() + 0.1 for _ in range(count)]

    def fn(*given: Tensor) -> Any:
        return func(*given, out=torch.zeros(SHAPE))

    expected = outcome(fn, inputs)
    got = outcome(aot.aot_function(fn, aot.run_as_is), inputs)
    if isinstance(expected, type):
        assert isinstance(got, type)
        return
    torch.testing.assert_close(got[0], expected[0], equal_nan=True)
    assert got[1] == expected[1]


SEVERAL = {
    "frexp": lambda x: torch.frexp(x, out=(torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.int))),
    "qr": lambda x: torch.linalg.qr(x, out=(torch.zeros(4, 4), torch.zeros(4, 4))),
    "cummax": lambda x: torch.cummax(
        x, 0, out=(torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.long))
    ),
    "eigh": lambda x: torch.linalg.eigh(x + x.t(), out=(torch.zeros(4), torch.zeros(4, 4))),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_keep_their_strides(name: str) -> None:
    fn = SEVERAL[name]
    x = torch.rand(4, 4).t()
    expected, got = fn(x), aot.aot_function(fn, aot.run_as_is)(x)
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other, one)
        assert other.stride() == one.stride()
