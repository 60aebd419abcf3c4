"""Results that no graph computes: none may hold a value of the trace, which has no data."""

import types

import flambeau_aot as aot
import pytest
import torch


class Pair(torch.Tensor):
    """A tensor that consists of two."""

    @staticmethod
    def __new__(cls, one, two):
        return torch.Tensor._make_wrapper_subclass(cls, one.shape, dtype=one.dtype)

    def __init__(self, one, two):
        self.one, self.two = one, two

    @classmethod
    def __torch_dispatch__(cls, func, kinds, args=(), kwargs=None):
        parts = [
            func(*[getattr(a, name) if isinstance(a, Pair) else a for a in args], **(kwargs or {}))
            for name in ("one", "two")
        ]
        return cls(*parts)


class Flat(Pair):
    """The same, and says so."""

    def __tensor_flatten__(self):
        return ["one", "two"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Flat(inner["one"], inner["two"])


ESCAPES = {
    "a subclass": lambda x: Pair(x * 2, x),
    "what was computed of one": lambda x: Pair(x * 2, x) + 1,
    "in an object": lambda x: types.SimpleNamespace(y=x + 1),
    "in a list of an object": lambda x: (x, types.SimpleNamespace(ys=[x + 1])),
}


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("grad", [False, True])
def test_refused_by_name(name, grad) -> None:
    with pytest.raises(aot.Unsupported, match=r"a result is a|escaped the trace"):
        aot.aot_function(ESCAPES[name], aot.run_as_is)(torch.ones(2, requires_grad=grad))


MADE = {
    "as it is": lambda x: Flat(x * 2, x),
    "a view": lambda x: [x + 1, Flat(x * 2, x).view(-1)],
    "its parts": lambda x: [Flat(x * 2, x).one, Flat(x, x.cos()).sin().two],
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("grad", [False, True])
def test_one_that_flattens_is_a_result(name, grad) -> None:
    def parts(result):
        leaves = torch.utils._pytree.tree_leaves(result)
        return [(type(x), x.one, x.two) if isinstance(x, Flat) else x for x in leaves]

    expected, given = (torch.arange(2.0, requires_grad=grad) for _ in range(2))
    compiled = aot.aot_function(MADE[name], aot.run_as_is)
    wanted, found = MADE[name](expected), compiled(given)
    torch.testing.assert_close(
        [x[1:] if isinstance(x, tuple) else x for x in parts(found)],
        [x[1:] if isinstance(x, tuple) else x for x in parts(wanted)],
    )
    assert type(found) is type(wanted)


def test_a_compiler_that_returns_values_of_the_trace() -> None:
    def compiler(gm, inputs, info):
        made = [node.meta["val"] for node in gm.graph.nodes if node.op == "call_function"]
        return lambda args: made[-1:]

    with pytest.raises(aot.CompilerContractError, match="which has no data"):
        aot.aot_function(lambda x: x + 1, compiler)(torch.ones(2))


def test_what_holds_no_value_of_the_trace_is_a_result() -> None:
    known = types.SimpleNamespace(y=torch.ones(2))
    assert aot.aot_function(lambda x: (x + 1, known), aot.run_as_is)(torch.ones(2))[1] is known
