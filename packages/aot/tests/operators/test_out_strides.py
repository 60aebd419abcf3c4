"""What an operator writes to `out=` lies as `out` does, however its operands lie: every operator of
torch that takes tensors alone, by its name in torch or in ATen, each of several layouts of operands
and of outs; and operators of several results."""

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


def taken(overload: object) -> int:
    """How many tensors the operator takes beside `out`; 0: others besides, or none."""
    asked = [x for x in overload._schema.arguments if not x.has_default_value()]
    written = [x for x in asked if x.kwarg_only]
    needed = [x for x in asked if not x.kwarg_only]
    alone = all(str(x.type) == "Tensor" for x in needed) and len(written) == 1
    return len(needed) if alone else 0


def writing() -> dict[str, tuple[object, int]]:
    """By name, what torch calls so, or ATen's overload of a pointwise operator where torch has no
    such name or the overload is another than `out`; and how many tensors it takes, one or two."""
    found: dict[str, tuple[object, int]] = {}
    for name in sorted({schema.name for schema in torch._C._jit_get_all_schemas()}):
        library, _, own = name.partition("::")
        ours = library == "aten" and not own.startswith("_")
        packet = getattr(torch.ops.aten, own, None) if ours else None
        for label in [] if packet is None else packet.overloads():
            overload = getattr(packet, label)
            count = taken(overload) if label.endswith("out") else 0
            known = label == "out" and hasattr(torch, own)
            if count in (1, 2) and (known or torch.Tag.pointwise in overload.tags):
                found[f"{own}.{label}"] = (getattr(torch, own) if known else overload, count)
    return found


OPERATORS = writing()
PAIRS = [(of, to) for of in LAYOUTS for to in LAYOUTS]


def out_like(result: torch.Tensor, layout: str) -> torch.Tensor:
    order = sorted(range(3), key=LAYOUTS[layout]().stride().__getitem__, reverse=True)
    made = result.new_zeros([SHAPE[d] for d in order])
    return made.permute([order.index(d) for d in range(3)]).clone()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("of", LAYOUTS)
@pytest.mark.parametrize("to", LAYOUTS)
def test_an_out_keeps_its_strides(of: str, to: str) -> None:
    compared, wrong = 0, []
    for number, (name, (operator, count)) in enumerate(OPERATORS.items()):
        if isinstance(operator, torch._ops.OpOverload) and PAIRS[number % 9] != (of, to):
            continue  # one pair of layouts each, as all overloads of a name have one kernel
        given = [LAYOUTS[of]() for _ in range(count)]
        packet = getattr(torch.ops.aten, name.partition(".")[0])
        try:
            first = packet(*given)
        except (RuntimeError, TypeError):  # of integers, of matrices, a module
            continue
        if not isinstance(first, torch.Tensor) or first.shape != SHAPE:
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
        drawn = torch.Tag.nondeterministic_seeded in getattr(packet, name.partition(".")[2]).tags
        same = drawn or torch.allclose(found, expected, equal_nan=True)
        if not same or not found.stride() == expected.stride() == like.stride():
            wrong.append((name, found.stride(), expected.stride()))
    assert not wrong
    assert compared > 60


def ends(operator, tensors, out):  # type: ignore[no-untyped-def]
    """Without the result of the call."""
    operator(*tensors, out=out)
    return out


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
