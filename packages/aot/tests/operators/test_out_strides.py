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


OUTS = {
    "of no elements": lambda x: x.new_zeros(0),
    "longer": lambda x: x.new_zeros(*x.shape, 2),
    "a number": lambda x: x.new_zeros(()),
    "turned": lambda x: x.new_zeros(x.shape[::-1]).permute([*range(x.dim())][::-1]),
    "with gaps": lambda x: x.new_zeros(*x.shape, 2)[..., 0],
    "with gaps and shorter": lambda x: (
        x.new_zeros(*x.shape, 2)[..., 0].narrow(0, 0, 1) if x.dim() else x
    ),
    "repeated": lambda x: x.new_zeros(()).expand(x.shape),
    "of another dtype": lambda x: x.double() if x.dtype == torch.float else x.float(),
}
OF_SEVERAL = {
    **{name: getattr(torch.linalg, name) for name in ("lu_factor", "qr", "eig", "cholesky_ex")},
    **{name: getattr(torch, name) for name in ("geqrf", "frexp", "sort")},
    "topk": lambda x, **named: torch.topk(x, 2, **named),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", OUTS)
@pytest.mark.parametrize("name", OF_SEVERAL)
def test_several_of_any_layout_are_eagers_or_refused(name: str, kind: str) -> None:
    """Refused by name, as what eager raises is."""
    x, operator = torch.rand(4, 4) + 4 * torch.eye(4), OF_SEVERAL[name]
    models = tuple(each.clone() for each in operator(x))

    def fn(x: torch.Tensor, *models: torch.Tensor) -> list[torch.Tensor]:
        outs = tuple(map(OUTS[kind], models))
        return [*operator(x, out=outs), *outs]

    try:
        expected = fn(x, *models)
    except RuntimeError:
        expected = None
    try:
        found = aot.aot_function(fn, aot.run_as_is)(x, *models)
    except (aot.Unsupported, RuntimeError) as error:
        assert expected is None or str(error).startswith("AO00")
        return
    assert expected is not None
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one)
        assert other.stride() == one.stride()


@pytest.mark.parametrize("options", [{"dim": 0}, {"dim": (1,)}, {"s": (3,)}, {}, {"dim": (0, 1)}])
@pytest.mark.parametrize("name", ["ihfft", "ihfft2", "ihfftn"])
def test_half_spectra_leave_out_what_eager_leaves(name: str, options: dict) -> None:
    transform, x = getattr(torch.fft, name), torch.rand(4, 4)
    try:
        like = transform(x, **options)
    except (RuntimeError, TypeError):
        return

    def fn(x: torch.Tensor) -> list[torch.Tensor]:
        out = torch.full(like.shape, 3, dtype=like.dtype)
        return [transform(x, **options, out=out), out]

    torch.testing.assert_close(aot.aot_function(fn, aot.run_as_is)(x), fn(x))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("to", ["contiguous", "turned", "with gaps"])
@pytest.mark.parametrize("of", ["contiguous", "turned"])
def test_a_gelu_that_eager_does_not_write_is_refused(of: str, to: str, approximate: str) -> None:
    kinds = {**OUTS, "contiguous": torch.zeros_like}
    x = kinds[of](torch.zeros(4, 6)) + torch.rand(4, 6)

    def fn(x: torch.Tensor) -> torch.Tensor:
        out = kinds[to](x)
        return torch._C._nn.gelu(x, approximate=approximate, out=out)

    try:
        found = aot.aot_function(fn, aot.run_as_is)(x)
    except aot.Unsupported as error:
        assert "AO0184" in str(error) and approximate == "none" and to != "contiguous"
    else:
        torch.testing.assert_close(found, fn(x))
