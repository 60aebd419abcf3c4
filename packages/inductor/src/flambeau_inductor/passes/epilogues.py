"""Epilogue fusion: biases into matrix products, functions into oneDNN's calls.

In: a graph of primitives. Out: the same, in which `add(mm(a, b), bias)` is `addmm(bias, a, b)`, and
oneDNN's convolutions and linear maps apply the function of their result. Invariant: nobody else
reads the intermediate values, and the result goes to memory anyway (a loop would compute the sum or
function as it reads); only functions for which oneDNN gives what eager gives, NaN and infinities
included: its `relu`, `hardtanh` and `hardsigmoid` lose NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.ir.program import Asked, CallWithEpilogue
from flambeau_inductor.node_queries import erase_unused, has_tag, readers, same_meta, val_of
from flambeau_inductor.passes.rewriter import (
    Argument,
    Call,
    Ledger,
    Match,
    Named,
    NumberPattern,
    Rule,
    Value,
    ops,
    rewrite,
)
from flambeau_inductor.passes.simplify import sizes_of

_x = Value("x", lambda node: name_of(node) != "full")
_CUBE = _x * _x * _x
_ERF = ops.erf(_x * 0.7071067811865476) + 1.0
_CLAMPED = ops.minimum(ops.maximum(_x + 3.0, 0.0), 6.0)


def _gelu_tanh(inner: Call) -> Call:
    return _x * 0.5 * (ops.tanh(inner * 0.7978845608028654) + 1.0)


FUNCTIONS: Mapping[str, tuple[tuple[Call, ...], str, str]] = {
    "hardswish": ((_x * _CLAMPED / 6.0,), "hardswish", ""),
    "leaky_relu": (
        (ops.where(ops.gt(_x, 0.0), _x, _x * NumberPattern("slope")),),
        "leaky_relu",
        "",
    ),
    "silu": ((_x * ops.sigmoid(_x),), "swish", ""),
    "gelu": (
        (
            _x * 0.5 * _ERF,
            # as oneDNN computes it where eager calls it, infinity included
            ops.where(ops.eq(_x, math.inf), math.nan, _x * _ERF * 0.5),
        ),
        "gelu",
        "none",
    ),
    "gelu_tanh": (
        (_gelu_tanh(ops.fma(_CUBE, 0.044715, _x)), _gelu_tanh(_x + _CUBE * 0.044715)),
        "gelu",
        "tanh",
    ),
}
"""Name: the ways it is written in primitives, and oneDNN's name and form of it."""

PRODUCERS = frozenset({"convolution", "mm", "addmm"})

CALLS = PRODUCERS | {"bmm", "baddbmm", "attention", "topk", "sort"}
"""Primitives that the library runs: what they read is in memory."""


def fuse_epilogues(
    gm: fx.GraphModule, wanted: Callable[[str], bool], ledger: Ledger | None = None
) -> fx.GraphModule:
    """`gm`, or a copy in which calls apply those functions of their results that are wanted."""
    if not any(name_of(node) in PRODUCERS and _is_computed_so(node) for node in gm.graph.nodes):
        return gm
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    rules = [
        Rule(rule_of(function), patterns, partial(_with_epilogue, name=name, form=form))
        for function, (patterns, name, form) in FUNCTIONS.items()
        if wanted(function)
    ]
    if not rewrite(graph, rules, ledger):
        return gm
    erase_unused(node for node in graph.nodes if name_of(node) in PRODUCERS | {"reshape", "full"})
    return fx.GraphModule(gm, graph)


def rule_of(function: str) -> str:
    """The name of a function's rule."""
    return f"epilogue_{function}"


def _is_computed_so(node: fx.Node) -> bool:
    made = val_of(node)
    return made is None or bool(made.device.type == "cpu" and made.dtype == torch.float32)


def _with_epilogue(m: Match, name: str, form: str) -> fx.Node | None:
    """The call and the function, if nobody else reads what lies between."""
    seen, inside = m["x"], {*m.inside}
    if not _is_in_memory(m.root) or any(user not in inside for user in seen.users):
        return None
    call, slope = seen, m.bound.get("slope")
    positive = slope is None or slope > 0
    if name_of(seen) == "reshape" and isinstance(seen.args[0], fx.Node):
        call = seen.args[0]
        if len(call.users) != 1:
            return None
    if name_of(call) not in PRODUCERS or not _is_computed_so(call) or not positive:
        return None
    return _as_one(m, call, (name, () if slope is None else (slope,), form))


def _as_one(m: Match, call: fx.Node, asked: Asked) -> fx.Node:
    computed = {call, m["x"], *m.inside}
    numbers = {
        each for node in computed for each in node.all_input_nodes if name_of(each) == "full"
    }
    members = sorted(computed | numbers)
    operands = {
        each: None for node in members for each in node.all_input_nodes if each not in members
    }
    body = fx.Graph()
    known = {each: body.placeholder(each.name) for each in operands}
    for node in sorted(members):
        known[node] = body.node_copy(node, known.__getitem__)
    body.output(known[m.root])
    covered = tuple(known[node] for node in sorted({*m.inside}))
    made = CallWithEpilogue(asked, body, known[call], known[m["x"]], covered)
    with m.graph.inserting_before(call):
        return m.graph.call_function(made, tuple(operands))


def _is_in_memory(node: fx.Node) -> bool:
    return any(
        reader.op == "output" or name_of(reader) in CALLS or name_of(reader) is None
        for reader in readers(node)
    )


COMPUTING = ("pointwise", "reduction", "shape", "index")
_PRODUCT = Named("product", ops.mm(Value("a"), Value("b")))
_SEEN = Named("seen", ops.reshape(_PRODUCT, Argument()))
_BIAS = Value("bias", lambda node: name_of(node) == "broadcast_in_dim")


def _ends_here(product: fx.Node, total: fx.Node) -> bool:
    """Whether the total has the product's place, and is not computed with."""
    if len(product.users) != 1 or not same_meta(product, total):
        return False
    return not any(has_tag(r, tag) for r in readers(total) for tag in COMPUTING)


def _sum(m: Match) -> fx.Node | None:
    if not _ends_here(m["product"], m.root):
        return None
    return m.call(PRIMS["addmm"].overload, m["bias"], m["a"], m["b"], 1, 1)


def _sum_by_rows(m: Match) -> fx.Node | None:
    """The product is seen in another shape, and the bias is a row that its rows all get."""
    row, _, dims = m["bias"].args[:3]
    parts = (m["seen"], m["product"], row)
    shape, product, width = (getattr(val_of(part), "shape", None) for part in parts)
    if shape is None or product is None or width is None or not _ends_here(m["seen"], m.root):
        return None
    rows, columns = product
    if tuple(dims) != (len(shape) - 1,) or shape[-1] != columns or tuple(width) != (columns,):
        return None
    sizes = sizes_of(m.root, (rows, columns))
    repeated = m.call(PRIMS["broadcast_in_dim"].overload, row, sizes, [1])
    total = m.call(PRIMS["addmm"].overload, repeated, m["a"], m["b"], 1, 1)
    return m.call(PRIMS["reshape"].overload, total, *m["seen"].args[1:], **m["seen"].kwargs)


BIASES = (
    Rule("bias_into_product", (_PRODUCT + _BIAS,), _sum),
    Rule("bias_into_rows_of_product", (_SEEN + _BIAS,), _sum_by_rows),
)
