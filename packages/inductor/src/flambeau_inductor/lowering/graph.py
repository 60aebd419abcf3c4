"""Lowering of one graph.

In: an FX graph of primitives (and ATen overloads that nothing decomposed), its example inputs. Out:
a `TensorGraph`. Invariant: every node is lowered by the rule for its target, or runs as a library
call that `fallbacks` names with the reason; a library call writes to none of its arguments, and
memory that its results may share with an argument is marked and not reused.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from flambeau_prims import NotYetSymbolic, prim_of
from flambeau_prims.sizes import OPERATIONS, SIZE_OF
from torch import fx
from torch.fx.node import map_aggregate

from flambeau_inductor._torch_compat import OpOverload, has_effect, in_memory, may_alias, writes
from flambeau_inductor.indexing import (
    Size,
    as_expr,
    decide_equal,
    depends_on_data,
    hint,
    same,
    same_sizes,
    to_python,
)
from flambeau_inductor.info import ALONE, GraphInfo
from flambeau_inductor.ir.nodes import name_of, value_of
from flambeau_inductor.ir.program import CallWithEpilogue, ComputedNumber, Layout, SymbolSource
from flambeau_inductor.ir.tensors import (
    Argument,
    Attribute,
    Input,
    LibraryCall,
    Node,
    Output,
    Result,
    TensorGraph,
    View,
    dims_of,
)
from flambeau_inductor.lowering.context import (
    Context,
    LibraryChoices,
    LoweringError,
    meta_of,
    metas_of,
    values_of,
)
from flambeau_inductor.lowering.registry import rule_of
from flambeau_inductor.lowering.sizes import GraphSizes
from flambeau_inductor.node_queries import escaping
from flambeau_inductor.options import ALL, Fuel
from flambeau_inductor.runtime.report import Fallback

KERNEL_DTYPES = frozenset(
    {
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
    }
)  # fmt: skip
"""What loops compute with; an operation on anything else is the library's."""

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

VIEW_PRIMITIVES = frozenset({"broadcast_in_dim", "reshape", "permute", "slice", "as_strided"})


def lower_graph(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any] | None = None,
    info: GraphInfo = ALONE,
    fuel: Fuel = ALL,
    open_sizes: GraphSizes | None = None,
    deterministic: bool = False,
    choices: LibraryChoices | None = None,
) -> TensorGraph:
    """Lower `gm`. `example_inputs` stand in for missing `meta["val"]` of placeholders; what is
    assumed about sizes that are left open is noted in `open_sizes`. Fuel bounds the operations that
    a rule lowers, and the library calls that apply an epilogue."""
    graph = TensorGraph(info.name)
    ctx = Context(
        graph,
        fuel,
        open_sizes or GraphSizes(),
        choices or LibraryChoices(),
        deterministic or torch.are_deterministic_algorithms_enabled(),
        written_parts(gm.graph, info),
    )
    ctx.sizes.compute = ctx.compute_size
    env: dict[fx.Node, Any] = {}
    given = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    ctx.sizes.expect([n for x in given for n in (x.shape if isinstance(x, torch.Tensor) else (x,))])
    position, seen = 0, escaping(gm.graph)
    for node in gm.graph.nodes:
        ctx.origin, ctx.counter, ctx.seen = node.name, 0, node in seen
        if node.op == "placeholder":
            if "val" not in node.meta and example_inputs is not None:
                node.meta["val"] = example_inputs[position]
            env[node] = _placeholder(ctx, node, position)
            position += 1
        elif node.op == "get_attr":
            env[node] = _attribute(ctx, gm, node)
        elif node.op == "output":
            graph.outputs = [_output(ctx, env, a) for a in _several(node.args[0])]
        elif node.op == "call_function":
            lower = _with_epilogue if isinstance(node.target, CallWithEpilogue) else _call
            env[node] = lower(ctx, node, env)
        else:
            raise LoweringError(f"{node.name}: {node.op} does not belong in a graph of primitives")
    graph.symbols = ctx.sizes.sources()
    places = {
        made.define.position: k
        for k, made in enumerate(graph.inputs)
        if isinstance(made.define, Input)
    }
    graph.donated = frozenset(places[at] for at in info.reusable_inputs if at in places)
    graph.updates = {out: places[given] for out, given in info.updates if given in places}
    return graph


PART_WRITES = frozenset({"slice_scatter", "index_put", "scatter"})
"""Primitives that write a part of their first operand."""


def written_parts(graph: fx.Graph, info: GraphInfo) -> dict[str, bool]:
    """Nodes that write a part of a tensor which nobody needs as it was before: an input that the
    graph updates, or, on a CPU, what such a node made and no other writes to; and whether nobody
    reads it. A GPU takes several parts of a tensor of its own in one kernel."""
    given = graph.find_nodes(op="placeholder")
    (output,) = graph.find_nodes(op="output")
    results = _several(output.args[0])
    found: set[fx.Node] = set()
    node: Any
    base: Any
    for position, place in info.updates:
        chain, node = [], results[position]
        while name_of(node) in PART_WRITES:
            chain.append(node)
            node = node.args[0]
        found |= set(chain) if node is given[place] else set()
    for node in graph.nodes:
        base = node.args[0] if name_of(node) == "slice_scatter" else None
        if name_of(base) == "slice_scatter" and value_of(node).device.type == "cpu":
            writes = (user for user in base.users if name_of(user) in PART_WRITES)
            writers = [user for user in writes if user.args[0] is base]
            found |= {node} if writers == [node] else set()
    return {node.name: len(node.all_input_nodes[0].users) == 1 for node in found}


def _placeholder(ctx: Context, node: fx.Node, position: int) -> Any:
    value = value_of(node)
    if isinstance(value, torch.SymFloat):
        ctx.graph.numbers.append(position)
        ctx.sizes.named(value, f"number{position}")
        return ctx.number(f"number{position}")
    if isinstance(value, SYMBOLIC):
        number = ctx.sizes.size(value)
        ctx.sizes.given(number, SymbolSource(position))
        ctx.graph.numbers.append(position)
        return number
    meta = meta_of(value_of(node), node.name, ctx.sizes)
    if meta is None:
        raise NotYetSymbolic(f"{node.name}: an input that is a number, not a tensor")
    for dim, size in enumerate(meta.shape):
        ctx.sizes.given(size, SymbolSource(position, dim))
    for dim, step in enumerate(meta.stride):
        ctx.sizes.given(step, SymbolSource(position, dim, stride=True))
    made = ctx.result(meta, Input(position))
    ctx.graph.inputs.append(made)
    return made


def _attribute(ctx: Context, gm: fx.GraphModule, node: fx.Node) -> Node:
    value: Any = gm
    for part in str(node.target).split("."):
        value = getattr(value, part)
    if not isinstance(value, torch.Tensor):
        raise LoweringError(f"{node.name}: attribute {node.target} is not a tensor")
    value = in_memory(value.detach())
    meta = meta_of(value, node.name)
    assert meta is not None
    node.meta.setdefault("val", value)
    return ctx.result(meta, Attribute(str(node.target), value))


def _with_epilogue(ctx: Context, node: fx.Node, outer: dict[fx.Node, Any]) -> Any:
    """A library call that applies a function to its result, or the nodes by themselves."""
    fused, graph, start = node.target, ctx.graph, len(ctx.graph.order)
    assert isinstance(fused, CallWithEpilogue)
    env: dict[fx.Node, Any] = {}
    inputs = fused.body.find_nodes(op="placeholder")
    for given, each in zip(inputs, node.all_input_nodes, strict=True):
        env[given], given.meta = outer[each], {"val": value_of(each)}
    nodes = [each for each in fused.body.nodes if each.op == "call_function"]
    fuel = ctx.fuel.lowerings
    enough = fuel is None or fuel - len(graph.lowered) >= len(nodes)
    taken = enough and len(graph.absorbed) != ctx.fuel.fusions
    for each in nodes:
        if taken and each in fused.nodes:
            _count(ctx, each)
            continue
        ctx.origin, ctx.counter, ctx.seen = each.name, 0, False
        ctx.after = fused if taken and each is fused.call else None
        env[each], ctx.after = _call(ctx, each, env), None
        if each is fused.call:
            calls = (item for item in graph.order[start:] if isinstance(item, LibraryCall))
            taken = taken and any(call.args[-3:] == fused.asked for call in calls)
    if taken:
        graph.absorbed.append((fused.call.name, fused.names[-1]))
    return env[fused.seen if taken else fused.nodes[-1]]


def _call(ctx: Context, node: fx.Node, env: dict[fx.Node, Any]) -> Any:
    if node.target is operator.getitem:
        operands: Any = fx.node.map_arg(node.args, env.__getitem__)
        return operands[0][operands[1]]
    value = node.meta.get("val")
    if node.target is ITEM and isinstance(value, SYMBOLIC):
        return _item(ctx, node, env)
    if isinstance(value, torch.SymFloat):
        return ctx.number(ctx.sizes.text(value))
    if isinstance(value, torch.SymBool):
        return ComputedNumber(_own_text(ctx, node))
    if isinstance(value, SYMBOLIC):
        return ctx.sizes.size(value)
    prim = prim_of(node.target)
    name = prim.name if prim is not None else str(node.target)
    if prim is not None and "mutating" in prim.tags:
        raise LoweringError(f"{node.name}: {name} writes to its argument; graphs are functional")
    ctx.metas, ctx.values = metas_of(node, ctx.sizes), values_of(node)
    ctx.first_alone = len(ctx.metas) == 1 or all(map(_is_first, node.users))
    devices = {meta.device.type: meta.device for meta in ctx.metas if meta is not None}

    def given(part: Any) -> Any:
        if isinstance(part, fx.Node):
            return env[part]
        if isinstance(part, torch.SymInt):  # symbols that are written out in the graph
            return ctx.sizes.size(part)
        named = isinstance(part, torch.device) and part.index is None
        return devices.get(part.type, part) if named else part  # "cuda" is the one of the metadata

    args, kwargs = map_aggregate((node.args, node.kwargs), given)
    rule = rule_of(name)
    reason = "no decomposition" if prim is None else "no lowering rule"
    if rule is not None and name not in VIEW_PRIMITIVES:
        if (unheld := _unheld(ctx, node)) is not None:
            rule, reason = None, unheld
        elif len(ctx.graph.lowered) == ctx.fuel.lowerings:
            rule, reason = None, "out of fuel"
    before = len(ctx.graph.order)
    if rule is not None:
        try:
            made = _laid_out(ctx, name, rule(ctx, *args, **kwargs))
            _count(ctx, node)
            return made
        except LoweringError as error:
            del ctx.graph.order[before:]
            reason = str(error)
    ctx.graph.fallbacks.append(Fallback(str(node.target), reason, node.name))
    return library_call(ctx, node.target, args, kwargs, value_of(node))


def _is_first(user: fx.Node) -> bool:
    """Whether a user of several results takes the first of them, or takes another for nobody."""
    return user.target is operator.getitem and bool(user.args[1] == 0 or not user.users)


ITEM = torch.ops.aten._local_scalar_dense.default


def _item(ctx: Context, node: fx.Node, env: dict[fx.Node, Any]) -> Any:
    """The number in a tensor, which is a size from here on, or a float."""
    number = node.meta["val"]
    if isinstance(number, torch.SymFloat):
        name = ctx.sizes.read(number)
    else:
        (name, _), *_ = ctx.sizes.made((ctx.sizes.own(number),)) or [("", 0)]
    if name:
        ctx.read_number(env[node.args[0]], name)  # type: ignore[index]
    if isinstance(number, torch.SymFloat):
        return ctx.number(ctx.sizes.text(number))
    return ctx.sizes.size(number)


_SIGNS: dict[Any, str] = {
    **{operation.call: operation.sign for operation in OPERATIONS.values() if operation.sign},
    operator.sub: "-", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=",
    operator.gt: ">", operator.ge: ">=",
}  # fmt: skip


def _own_text(ctx: Context, given: Any) -> str:
    """A number as Python, of what the nodes that compute it are given. Rule: nothing is used that
    the environment has learnt since: a condition that is assumed is true to it, and is not checked
    yet."""
    if not isinstance(given, fx.Node):
        return repr(given)
    value = given.meta["val"]
    if given.target in _SIGNS:
        left, right = (_own_text(ctx, part) for part in given.args)
        return f"({left} {_SIGNS[given.target]} {right})"
    if given.target is SIZE_OF:
        base, dim = given.args
        value = value_of(base).shape[dim]  # type: ignore[arg-type]
    if isinstance(value, torch.SymFloat):
        return ctx.sizes.text(value)
    return to_python(as_expr(ctx.sizes.own(value)))


def _count(ctx: Context, node: fx.Node) -> None:
    if (prim := prim_of(node.target)) is not None and prim.name not in VIEW_PRIMITIVES:
        ctx.graph.lowered.append((prim.name, node.name))


def _unheld(ctx: Context, node: fx.Node) -> str | None:
    """Why no kernel can work on these numbers; None if one can."""
    tensors = [n for n in node.all_input_nodes if not isinstance(n.meta.get("val"), SYMBOLIC)]
    operands = [m for source in tensors for m in metas_of(source, ctx.sizes)]
    results = ctx.metas[:1] if ctx.first_alone else ctx.metas
    dtypes = (meta.dtype for meta in (*operands, *results) if meta is not None)
    unheld = next((dtype for dtype in dtypes if dtype not in KERNEL_DTYPES), None)
    return None if unheld is None else f"no kernel holds {unheld}"


def _laid_out(ctx: Context, name: str, result: Any) -> Any:
    """Give what the rule made the strides that the graph's metadata state for it."""
    if name in VIEW_PRIMITIVES:
        meta = ctx.metas[0]
        if meta is not None and isinstance(result, Node) and isinstance(result.define, View):
            ctx.graph.seen[result] = meta.stride
        return result
    if isinstance(result, tuple):
        pairs = zip(result, ctx.metas, strict=True)
        return tuple(_in_layout(ctx, part, meta) for part, meta in pairs)
    return _in_layout(ctx, result, ctx.metas[0])


def _in_layout(ctx: Context, node: Node | None, meta: Layout | None) -> Node | None:
    if node is None or meta is None:
        return node
    if _is_named_otherwise(node.shape, meta.shape):
        node = ctx.view(node, meta.shape, dims_of(len(meta.shape)))
    assert same_sizes(node.shape, meta.shape) and node.dtype == meta.dtype, (
        f"{node.name}: lowered to {node.dtype}{list(node.shape)}, metadata say {meta}"
    )
    own = ctx.origin in node.origins and not isinstance(node.define, View | Input | Result)
    if own and not same_sizes(node.stride, meta.stride) and is_dense(meta.shape, meta.stride):
        ctx.graph.strides[node] = meta.stride
    return node


def _is_named_otherwise(shape: Sequence[Size], stated: Sequence[Size]) -> bool:
    """Whether sizes are those that metadata state, by other names: sums of parts and what they are
    parts of, or what is left of them where a part was found to be empty."""
    if len(shape) != len(stated) or same_sizes(shape, stated):
        return False
    return depends_on_data((*shape, *stated)) or all(map(decide_equal, shape, stated))


def is_dense(shape: Sequence[Size], stride: Sequence[Size]) -> bool:
    """Whether the strides are those of a permuted contiguous tensor."""
    expected: Size = 1
    moving = ((n, s) for n, s in zip(shape, stride, strict=True) if not decide_equal(n, 1))
    for size, step in sorted(moving, key=lambda pair: (hint(pair[1]), hint(pair[0]))):
        if not same(step, expected):
            return False
        expected *= size
    return True


def _output(ctx: Context, env: dict[fx.Node, Any], argument: Any) -> Output:
    if not isinstance(argument, fx.Node):
        return Output(argument)
    value = env[argument]
    if not isinstance(value, Node):
        return Output(value)
    meta = meta_of(value_of(argument), argument.name, ctx.sizes)
    assert meta is not None, f"{argument.name}: an output without metadata"
    return Output(value, meta.stride)


def library_call(
    ctx: Context, target: object, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
) -> Any:
    """Run `target`; returns a node, or a tuple with literals where results are not tensors."""
    if not isinstance(target, OpOverload):
        raise LoweringError(f"{ctx.origin}: {target} is not an operator overload")
    if writes(target):
        raise LoweringError(f"{ctx.origin}: {target} writes to its argument")
    values = _several(value)
    results = ctx.call(
        str(target),
        tuple(_argument(a) for a in args),
        tuple((k, _argument(v)) for k, v in kwargs.items()),
        impure=has_effect(target),
        aliases=may_alias(target),
    )
    mixed = tuple(v if r is None else r for r, v in zip(results, values, strict=True))
    return mixed if isinstance(value, tuple | list) else mixed[0]


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _argument(value: Any) -> Argument:
    made: Argument = tuple(map(_argument, value)) if isinstance(value, list | tuple) else value
    return made


_UNORDERED = """
    aten.index_add.default aten.scatter_add.default aten.scatter_reduce.two
    aten.avg_pool2d_backward.default aten.max_pool2d_with_indices_backward.default
    aten._embedding_bag_dense_backward.default aten.upsample_bilinear2d_backward.default
    aten.grid_sampler_2d_backward.default aten.histc.default aten.bincount.default
    aten.put.default
    """
UNORDERED = frozenset(_UNORDERED.split())
"""On CUDA tensors; a CPU's threads write to places of their own."""


def refuse_unordered(graph: TensorGraph) -> None:
    """Raise for the first call on a GPU that adds in whatever order threads come."""
    for item in graph.order:
        if not isinstance(item, LibraryCall) or item.target not in UNORDERED:
            continue
        results = [node for node in graph.results[item] if node is not None]
        if any(node.device.type == "cuda" for node in results):
            raise LoweringError(
                f"{item.target} ({', '.join(item.origins)}) adds in the order in which threads"
                " arrive, and `deterministic` was asked for"
            )
