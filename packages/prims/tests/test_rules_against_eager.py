"""Every primitive: the shape rule against what eager returns, with real and with fake tensors."""

import os

import pytest
import torch
from flambeau_prims import PRIMS, PrimError, TensorMeta, prim_of
from flambeau_prims._op import is_same_layout, metas_of
from flambeau_prims.conformance import cases
from flambeau_prims.ops.dynamic import SizeUnknown
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

CASES = list(cases())
SIZED = sorted(name for name, prim in PRIMS.items() if "data_dependent" not in prim.tags)
UNSIZED = sorted(set(PRIMS) - set(SIZED))


def results(value):
    if value is None:
        return ()
    return value if isinstance(value, (tuple, list)) else (value,)


def test_every_primitive_has_a_case():
    assert {case.prim.name for case in CASES} == set(PRIMS)


@pytest.mark.parametrize("name", SIZED)
def test_rule_predicts_eager(name):
    for case in CASES:
        if case.prim.name != name:
            continue
        got = results(case.run())
        kwargs = {k: metas_of(v) for k, v in case.kwargs.items()}
        promised = results(case.prim.rule(*map(metas_of, case.args), **kwargs))
        assert len(got) == len(promised), case.label
        for tensor, meta in zip(got, promised, strict=True):
            if meta is None:
                assert tensor is None, case.label
                continue
            seen = (tuple(tensor.shape), tensor.dtype, tensor.device)
            assert seen == (meta.shape, meta.dtype, meta.device), case.label
            assert is_same_layout(tensor, meta), (case.label, tensor.stride(), meta.stride)


WHOLE = os.environ.get("FLAMBEAU_SWEEPS") == "1"


def spread(x):
    return torch.stack([x, x], -1).flatten(-2)[..., ::2]


def turned(x):
    order = [*range(x.ndim)][::-1]
    return x.permute(order).contiguous().permute(order)


def odd(x):
    return x.as_strided(x.shape, [7 if n == 1 else s for n, s in zip(x.shape, x.stride())])


UNSTEPPED = {
    "none of the first": lambda x: x[:0],
    "none of the last": lambda x: x[..., :0],
    "none of what is spread": lambda x: spread(x)[:0],
    "none of what is repeated": lambda x: x[..., :1].clone().expand(x.shape)[:0],
    "one of what is spread": lambda x: spread(x)[:1],
    "one of the last": lambda x: turned(x)[..., :1],
    "odd steps of one": lambda x: odd(x.contiguous()),
}


def with_operands(tree, change):
    if isinstance(tree, torch.Tensor):
        return change(tree) if tree.ndim and tree.shape[-1] else tree
    if isinstance(tree, (list, tuple)):
        return type(tree)(with_operands(x, change) for x in tree)
    return tree


def has_places(case):
    """Whether operands name places in others, which would be outside of what is cut: some kernels
    look at none of them."""
    dtypes = {x.dtype for x in (*case.args, *case.kwargs.values()) if torch.is_tensor(x)}
    return len(dtypes) > 1 and bool(dtypes & {torch.int64, torch.int32})


UNCHECKED = {
    "ormqr",
    "householder_product",
    "geqrf",
    "lstsq",
    "ldl_solve",
    "ldl_factor",
    "lu_solve",
}
"""Kernels that are handed sizes of other operands."""


@pytest.mark.parametrize("name", sorted(set(SIZED) - UNCHECKED))
def test_rule_predicts_strides_that_nothing_is_stepped_along(name):
    """A result without elements, and dimensions of size 1, have strides too, which a program may
    read, and by which later operations lay out theirs."""
    wrong = []
    for number, case in enumerate(case for case in CASES if case.prim.name == name):
        if has_places(case) or "backward" in name:
            continue
        for place, (how, change) in enumerate(UNSTEPPED.items()):
            if place != number % len(UNSTEPPED) and not WHOLE:
                continue
            args = with_operands(case.args, change)
            try:
                promised = results(case.prim.rule(*map(metas_of, args), **case.kwargs))
                got = results(case.prim.overload(*args, **case.kwargs))
            except (PrimError, RuntimeError, IndexError):
                continue  # the operands no longer fit each other
            strides = [x.stride() for x in got if x is not None]
            said = [tuple(meta.stride) for meta in promised if meta is not None]
            if strides != said:
                wrong.append(f"{case.label}, {how}: {strides}, the rule says {said}")
    assert wrong == []


def memory(values):
    found = [v for value in values for v in (value if isinstance(value, list) else [value])]
    return {v.untyped_storage().data_ptr() for v in found if torch.is_tensor(v) and v.numel()}


@pytest.mark.parametrize("name", sorted(PRIMS))
def test_a_schema_says_what_shares_memory(name):
    """A backend writes into the memory of what its schema says is new."""
    says = any(each.alias_info for each in PRIMS[name].overload._schema.returns)
    for case in CASES:
        if case.prim.name == name and not says:
            shared = memory(results(case.run())) & memory([*case.args, *case.kwargs.values()])
            assert not shared, case.label


@pytest.mark.parametrize("name", SIZED)
def test_fake_tensors(name):
    case = [case for case in CASES if case.prim.name == name][0]
    kwargs = {k: metas_of(v) for k, v in case.kwargs.items()}
    promised = results(case.prim.rule(*map(metas_of, case.args), **kwargs))
    with FakeTensorMode() as mode:

        def fake(x):
            if isinstance(x, torch.Tensor):
                return mode.from_tensor(x)
            return [fake(y) for y in x] if isinstance(x, list) else x

        got = results(case.prim.overload(*map(fake, case.args), **case.kwargs))
    for tensor, meta in zip(got, promised, strict=True):
        assert (tensor is None) == (meta is None)
        if meta is not None:
            assert (tuple(tensor.shape), tensor.dtype) == (meta.shape, meta.dtype)
            assert tensor.device == meta.device


@pytest.mark.parametrize("name", UNSIZED)
def test_sizes_that_depend_on_elements(name):
    case = [case for case in CASES if case.prim.name == name][0]
    kwargs = {k: metas_of(v) for k, v in case.kwargs.items()}
    with pytest.raises(SizeUnknown, match=name):
        case.prim.rule(*map(metas_of, case.args), **kwargs)
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        args = [
            mode.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x
            for x in case.args
        ]
        got = results(case.prim.overload(*args, **case.kwargs))
    symbols = {str(s) for x in got for s in x.shape if isinstance(s, torch.SymInt)}
    assert len({s for s in symbols if s.startswith("u")}) == 1
    for fake, real in zip(got, results(case.run()), strict=True):
        assert (fake.dtype, fake.ndim) == (real.dtype, real.ndim)
        for stated, size in zip(fake.shape, real.shape, strict=True):
            assert isinstance(stated, torch.SymInt) or stated == size


def test_device_of_a_fake_result():
    P = torch.ops.flambeau_prims
    with FakeTensorMode():
        x = torch.empty(4, device="cuda")
        assert P.add(x, x).device.type == "cuda"
        assert P.device_put(x, device="cpu").device.type == "cpu"
        assert P.full([2], 1, dtype=torch.float32, device="cuda").device.type == "cuda"
        q = torch.empty(1, 2, 5, 8, device="cuda")
        assert P.attention(q, q, q, None, 0.0, False)[1].shape == (1, 2, 32)


@pytest.mark.parametrize(
    "call",
    [
        lambda P, a: P.add(a, a[0]),
        lambda P, a: P.add(a, a.double()),
        lambda P, a: P.exp(a.long()),
        lambda P, a: P.sum(a, [1, 0]),
        lambda P, a: P.sum(a, [-1]),
        lambda P, a: P.reshape(a, [5]),
        lambda P, a: P.slice(a, [0, 0], [9, 1], [1, 1]),
        lambda P, a: P.where(a, a, a),
        lambda P, a: P.mm(a, a),
        lambda P, a: P.cat([a, a.double()], 0),
    ],
)
def test_rules_refuse(call):
    with pytest.raises(PrimError), FakeTensorMode():
        call(torch.ops.flambeau_prims, torch.empty(3, 4))


def test_lookup_and_costs():
    prim = prim_of(torch.ops.flambeau_prims.mm.default)
    assert prim is PRIMS["mm"] and prim_of(torch.ops.aten.mm.default) is None
    a = TensorMeta((3, 4), (4, 1), torch.float32, torch.device("cpu"))
    b = TensorMeta((4, 5), (5, 1), torch.float32, torch.device("cpu"))
    assert prim.flops(a, b) == 2 * 3 * 4 * 5
    assert prim.bytes(a, b) == 4 * (12 + 20 + 15)
    assert PRIMS["permute"].bytes(a, [1, 0]) == 0
    assert PRIMS["cast"].flops(a, dtype=torch.float64) == 12
    for case in CASES:
        if case.prim.name in UNSIZED:
            continue
        args = tuple(map(metas_of, case.args))
        assert case.prim.flops(*args, **case.kwargs) >= 0
        assert case.prim.bytes(*args, **case.kwargs) >= 0
