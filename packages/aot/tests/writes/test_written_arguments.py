"""Users' operators that write to their arguments: by schema, by how arguments share memory, by how
the operator is registered, and registered again."""

import contextlib
import itertools

import flambeau_aot as aot
import pytest
import torch

from ..conftest import sharing

ROWS = torch.arange(24.0).reshape(4, 6)

# What an operator does with tensors that it is given in order, under the schemas below.
SCHEMAS = {
    "(Tensor(a!) x, Tensor(b!) y) -> ()": lambda a, b: (a, b),
    "(Tensor(a!) x, Tensor(b!) y) -> None": lambda a, b: (a, b),
    "(Tensor x, Tensor(b!) y) -> ()": lambda a, b: (a, b),
    "(Tensor(a!)[] xs) -> ()": lambda a, b: ([a, b],),
    "(Tensor(a!)[] xs, Tensor(b!)? y=None, *, float by=2.0) -> ()": lambda a, b: ([a], b),
    "(Tensor(a!)? x, int[] n, Tensor(b!)? y, Tensor(c!)? z=None) -> ()": lambda a, b: (a, [1], b),
    "(Tensor(a!) x, Tensor(b!) y) -> Tensor": lambda a, b: (a, b),
    "(Tensor(a!) x, Tensor(b!) y) -> (Tensor, Tensor)": lambda a, b: (a, b),
    "(Tensor(a!) x, Tensor(b!) y) -> Tensor[]": lambda a, b: (a, b),
    "(Tensor(a!) x, Tensor(b!)[] ys) -> Tensor[]": lambda a, b: (a, [b]),
    "(Tensor(a!) x, Tensor(b!) y) -> (Tensor, Tensor[])": lambda a, b: (a, b),
    "(Tensor(a!) x, Tensor(b!) y) -> (Tensor[], Tensor, Tensor)": lambda a, b: (a, b),
    "(Tensor(a!) x, Tensor(b!) y) -> Tensor(a!)": lambda a, b: (a, b),
    "(Tensor(a!) x, Tensor(b!) y) -> (Tensor(b!), Tensor)": lambda a, b: (a, b),
}
PAIRS = {
    "apart": lambda x: (x[0], x[2]),
    "the same": lambda x: (x[1], x[1]),
    "in part": lambda x: (x[:2], x[1:3]),
    "whole and part": lambda x: (x, x[1:3]),
    "columns": lambda x: (x[:, 0], x[:, 3]),
    "crossing": lambda x: (x[:, 1], x[2]),
    "transposed": lambda x: (x[:, :4], x[:, :4].t()),
    "of a value of the program": lambda x: ((x * 2)[:2], (x * 2)[1:3]),
    "by as_strided": lambda x: (x.as_strided((5,), (2,), 1), x.as_strided((5,), (3,), 2)),
}


def kernel(schema):
    """The implementation: it reads what it wrote through the other argument."""

    def run(*args, **kwargs):
        tensors = [x for item in args for x in (item if isinstance(item, list) else [item])]
        first, second = [x for x in tensors if isinstance(x, torch.Tensor)]
        if "Tensor x," not in schema:
            first.add_(1)
        second.mul_(first.sum())
        if "Tensor x," not in schema:
            first.sub_(second.sum())
        own = first.sum() * 1, second.cos()
        result = schema.split(" -> ")[1]
        return {
            "Tensor": own[0],
            "(Tensor, Tensor)": own,
            "Tensor[]": list(own),
            "(Tensor, Tensor[])": (own[0], [own[1], own[0] + 1]),
            "(Tensor[], Tensor, Tensor)": ([own[1], own[0] + 1], *own),
            "Tensor(a!)": first,
            "(Tensor(b!), Tensor)": (second, own[0]),
        }.get(result)

    return run


@contextlib.contextmanager
def registered(schema, key="CompositeExplicitAutograd"):
    with torch.library._scoped_library("flambeau_written", "FRAGMENT") as library:
        library.define("op" + schema)
        library.impl("op", kernel(schema), key)
        if key == "CPU":
            torch.library.register_fake("flambeau_written::op", kernel(schema), lib=library)
        yield


def check(fn, *args, compiled=None):
    """The same values, strides and sharing of memory, of results and arguments."""
    both = []
    for run in (fn, compiled or aot.aot_function(fn, aot.run_as_is)):
        own = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
        found = torch.utils._pytree.tree_leaves((run(*own), own))
        both.append([x for x in found if isinstance(x, torch.Tensor)])
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=0)
        assert one.stride() == other.stride()
    assert sharing(both[0]) == sharing(both[1])


@pytest.mark.parametrize(("schema", "pair"), list(itertools.product(SCHEMAS, PAIRS))[::2])
def test_by_schema_and_memory(schema, pair) -> None:
    def fn(x):
        base = x * 2 if pair == "of a value of the program" else x
        a, b = PAIRS[pair](x) if base is x else (base[:2], base[1:3])
        result = torch.ops.flambeau_written.op(*SCHEMAS[schema](a, b))
        return result, base.clone(), a + 1

    with registered(schema):
        check(fn, ROWS)


@pytest.mark.parametrize("key", ["CPU", "CompositeExplicitAutograd"])
def test_defined_again(key) -> None:
    """A form of one schema is never met by an operator of another, nor what it did before."""
    compiled = {}
    for round in range(2):
        for schema, call in list(SCHEMAS.items())[:4]:

            def fn(x, call=call, round=round):
                return torch.ops.flambeau_written.op(*call(x[:2], x[1:3])), x + round

            with registered(schema, key):
                check(fn, ROWS)
                compiled[schema, round] = aot.aot_function(fn, aot.run_as_is)
                check(fn, ROWS, compiled=compiled[schema, round])


def test_another_implementation_of_the_same_schema() -> None:
    def fn(x):
        torch.ops.flambeau_written.by(x)
        return x + 1

    compiled = aot.aot_function(fn, aot.run_as_is)
    for factor in (2, 3):
        with torch.library._scoped_library("flambeau_written", "FRAGMENT") as library:
            library.define("by(Tensor(a!) x) -> ()")
            library.impl("by", lambda x, by=factor: x.mul_(by) and None, "CPU")
            torch.library.register_fake("flambeau_written::by", lambda x: None, lib=library)
            check(fn, ROWS[0, 1:2], compiled=compiled)


def test_what_was_compiled_for_another_schema_says_so() -> None:
    def fn(x):
        torch.ops.flambeau_written.again(x)
        return x + 1

    compiled = aot.aot_function(fn, aot.run_as_is)
    for schema in ("(Tensor(a!) x) -> ()", "(Tensor(a!) x, int n=1) -> ()"):
        with torch.library._scoped_library("flambeau_written", "FRAGMENT") as library:
            library.define("again" + schema)
            library.impl("again", lambda x, n=0: None, "CompositeExplicitAutograd")
            if "int" not in schema:
                compiled(torch.ones(2))
            else:
                with pytest.raises(RuntimeError, match="defined again with another schema"):
                    compiled(torch.ones(2))


def test_custom_ops_that_write_to_lists_and_optional_tensors() -> None:
    @torch.library.custom_op("flambeau_written::lists", mutates_args=("outs", "seen"))
    def lists(x: torch.Tensor, outs: list[torch.Tensor], seen: torch.Tensor | None = None) -> None:
        for index, out in enumerate(outs):
            out.copy_(x * index)
        if seen is not None:
            seen.add_(1)

    def fn(x, o, s):
        lists(x, [o[0], o[1].t()])
        lists(x, [], s)
        lists(x, [])
        lists(x, [o[1]], o[0, 0])
        return o + s.sum()

    check(fn, torch.randn(3, 3), torch.zeros(2, 3, 3), torch.zeros(2))


def test_a_write_to_elements_that_share_memory_is_refused() -> None:
    def fn(x):
        torch.ops.flambeau_written.op(x.expand(2, 6))
        return x

    with registered("(Tensor(a!) x) -> ()"), pytest.raises(aot.Unsupported, match="share memory"):
        aot.aot_function(fn, aot.run_as_is)(torch.ones(6))


@pytest.mark.parametrize("result", ["int", "(Tensor, int)", "(Tensor[], Tensor[])", "Tensor?"])
def test_results_that_are_no_tensors_are_refused_by_name(result) -> None:
    answers = {"int": 3, "(Tensor, int)": (ROWS, 3), "(Tensor[], Tensor[])": ([ROWS], [ROWS])}
    with torch.library._scoped_library("flambeau_written", "FRAGMENT") as library:
        library.define(f"op(Tensor(a!) x) -> {result}")
        library.impl("op", lambda x: answers.get(result), "CompositeExplicitAutograd")
        compiled = aot.aot_function(lambda x: torch.ops.flambeau_written.op(x), aot.run_as_is)
        with pytest.raises(aot.Unsupported, match="one list of them"):
            compiled(ROWS.clone())
