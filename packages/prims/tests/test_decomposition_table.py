"""The table: what is in it, what can be kept, and that results are fresh tensors."""

import pytest
import torch
from flambeau_prims import KEEPABLE, PRIMS, _op, decomposition, decompositions
from flambeau_prims._op import define
from flambeau_prims.conformance import Decomposing

aten = torch.ops.aten


def test_is_a_plain_mapping_of_overloads():
    table = decompositions()
    assert len(table) > 300 and all(isinstance(op, torch._ops.OpOverload) for op in table)
    assert aten.gelu.default in table and aten.rand.default not in table
    table.clear()
    assert len(decompositions()) > 300  # the caller's copy is its own


def test_keep():
    kept = decompositions(keep=["layer_norm", "gelu", "softmax", "sdpa", "batch_norm"])
    assert aten.native_layer_norm.default not in kept and aten.gelu_backward.default not in kept
    assert aten.silu.default in kept
    assert decompositions(keep="gelu").keys() == decompositions(keep=["gelu"]).keys()
    with pytest.raises(ValueError, match=r"known: .*layer_norm"):
        decompositions(keep=["layernorm"])
    assert {"layer_norm", "gelu", "softmax", "sdpa", "batch_norm"} <= set(KEEPABLE)


def test_philox():
    table = decompositions(random="philox")
    assert aten.native_dropout.default in table
    with pytest.raises(ValueError, match="philox"):
        decompositions(random="other")
    torch.manual_seed(0)
    with Decomposing(table):
        x = torch.rand(5000)
        y, mask = torch.native_dropout(torch.ones(5000), 0.25, True)
        b = torch.bernoulli(torch.full((5000,), 0.1))
        n = torch.randn(5000, dtype=torch.float64)
    assert 0 <= x.min() and x.max() < 1 and abs(x.mean() - 0.5) < 0.02
    assert abs(mask.float().mean() - 0.75) < 0.03 and torch.equal(y, mask / 0.75)
    assert abs(b.mean() - 0.1) < 0.02 and abs(n.var() - 1) < 0.1 and n.dtype == torch.float64
    torch.manual_seed(0)
    with Decomposing(table):
        assert torch.equal(torch.rand(5000), x)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: aten.alias(x),
        lambda x: aten.view(x, [3, 4]),
        lambda x: aten.expand(x, [3, 4]),
        lambda x: aten.permute(x, [0, 1]),
        lambda x: aten.slice(x, 0, 0, 9),
        lambda x: aten.floor(x.long()),
        lambda x: aten.clone(x),
        lambda x: aten._to_copy(x, dtype=x.dtype),
        lambda x: aten.constant_pad_nd(x, [0, 0]),
        lambda x: aten.pow(x, 1),
    ],
)
def test_results_are_never_arguments(call):
    x = torch.randn(3, 4)
    with Decomposing() as seen:
        out = call(x)
    assert out is not x and seen.decomposed
    torch.testing.assert_close(out, call(x))


def test_conversions_do_not_alias():
    x = torch.zeros(3)
    with Decomposing():
        copies = [x.clone(), aten._to_copy(x, dtype=x.dtype), aten.constant_pad_nd(x, [0, 0])]
    for copy in copies:
        copy.fill_(1)
    assert x.tolist() == [0, 0, 0]


def test_prims_are_not_in_the_table():
    assert not {prim.overload for prim in PRIMS.values()} & set(decompositions())


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
@pytest.mark.parametrize("op", [aten.isnan.default, aten.eq.Tensor], ids=str)
def test_dtypes_that_no_primitive_takes_stay_with_eager(op, dtype):
    x = torch.empty(2, dtype=dtype, device="meta")
    assert decompositions()[op](*[x] * len(op._schema.arguments)) is NotImplemented


INTERRUPTED = """
@decomposition(op, table=table)
def first(x):
    return x.clone()

define(
    "begun_anew(Tensor x) -> Tensor", rule=lambda x: x, eager=torch.clone, tags=[], doc="x"
)
raise KeyboardInterrupt
"""


def test_a_module_whose_import_was_interrupted_registers_anew():
    table, op = {}, aten.sin.default

    def executed(name):
        given = {"decomposition": decomposition, "define": define, "torch": torch}
        return {"__name__": name, "table": table, "op": op, **given}

    try:
        for _ in range(2):
            namespace = executed("late")
            with pytest.raises(KeyboardInterrupt):
                exec(INTERRUPTED, namespace)
            assert list(table) == [op]
            assert table[op].__wrapped__ is namespace["first"]
        assert torch.equal(torch.ops.flambeau_prims.begun_anew(torch.ones(2)), torch.ones(2))
        for there in (namespace, executed("another")):
            for text in (INTERRUPTED, INTERRUPTED.partition("define")[2].join(["define", ""])):
                with pytest.raises(ValueError, match="twice"):
                    exec(text, there)
    finally:
        if "begun_anew" in PRIMS:
            _op._BY_OVERLOAD.pop(PRIMS.pop("begun_anew").overload)
