"""What an operator writes to `out=` lies as `out` does, however its operands lie: every operator of
torch that takes tensors alone, each of several layouts of operands and of outs."""

from __future__ import annotations

import flambeau_aot as aot
import pytest
import torch

SHAPE = (4, 2, 3)
LAYOUTS = {
    "contiguous": lambda: torch.rand(SHAPE),
    "transposed": lambda: torch.rand(3, 2, 4).transpose(0, 2),
    "channels last": lambda: torch.rand(4, 3, 2).transpose(1, 2),
}


def taken(name: str) -> int:
    """How many tensors the operator takes beside `out`; 0: others besides, or none."""
    packet = getattr(torch.ops.aten, name, None)
    if name.startswith("_") or "out" not in getattr(packet, "overloads", list)():
        return 0
    asked = [x for x in packet.out._schema.arguments if not x.has_default_value()]
    written = [x for x in asked if x.kwarg_only]
    needed = [x for x in asked if not x.kwarg_only]
    alone = all(str(x.type) == "Tensor" for x in needed) and len(written) == 1
    return len(needed) if alone else 0


OPERATORS = {name: taken(name) for name in dir(torch) if taken(name) in (1, 2)}


def out_like(result: torch.Tensor, layout: str) -> torch.Tensor:
    order = sorted(range(3), key=LAYOUTS[layout]().stride().__getitem__, reverse=True)
    made = result.new_zeros([SHAPE[d] for d in order])
    return made.permute([order.index(d) for d in range(3)]).clone()


@pytest.mark.parametrize("of", LAYOUTS)
@pytest.mark.parametrize("to", LAYOUTS)
def test_an_out_keeps_its_strides(of: str, to: str) -> None:
    compared, wrong = 0, []
    for name, count in OPERATORS.items():
        given = [LAYOUTS[of]() for _ in range(count)]
        operator = getattr(torch, name)
        try:
            first = operator(*given)
        except (RuntimeError, TypeError):  # of integers, of matrices, a module
            continue
        if first.shape != SHAPE:
            continue
        like = out_like(first, to)

        def fn(*tensors: torch.Tensor, operator=operator, like=like) -> torch.Tensor:
            out = torch.empty_like(like)
            return (
                operator(*tensors, out=out) if len(tensors) == 1 else ends(operator, tensors, out)
            )

        try:
            expected = fn(*given)
        except TypeError:  # of ATen alone
            continue
        found = aot.aot_function(fn, aot.run_as_is)(*given)
        compared += 1
        drawn = torch.Tag.nondeterministic_seeded in getattr(torch.ops.aten, name).out.tags
        same = drawn or torch.allclose(found, expected, equal_nan=True)
        if not same or not found.stride() == expected.stride() == like.stride():
            wrong.append((name, found.stride(), expected.stride()))
    assert not wrong
    assert compared > 60


def ends(operator, tensors, out):  # type: ignore[no-untyped-def]
    """Without the result of the call."""
    operator(*tensors, out=out)
    return out
