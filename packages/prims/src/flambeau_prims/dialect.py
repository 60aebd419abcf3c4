"""The dialect of primitives, and its check.

In: a GraphModule after lowering. Out: the ATen operations left in it, by name and number.
Invariant: a graph that passes can be run, compiled and cached on the strength of `DIALECT` alone.

The rules, by the name an error gives them:
- `targets`: a call is of a prim, `operator.getitem`, a functional ATen overload (a leaf), or
  computes a symbolic size;
- `values`: every node but the output has `meta["val"]`;
- `shapes`: the prim's shape rule accepts its operands and gives what `meta["val"]` says;
- `effects`: `copy_` writes to graph inputs only, and nothing else writes at all;
- `outputs`: the output is a tuple or list.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_prims._op import Prim, PrimError, prim_of, spell, tensor_metas
from flambeau_prims._torch_compat import OpOverload, is_mutable
from flambeau_prims.ops.dynamic import SizeUnknown
from flambeau_prims.shape_rules import TensorMeta
from flambeau_prims.sizes import ARITHMETIC, SIZE_OF


class DialectError(ValueError):
    """A graph is not in the dialect; the message names nodes, user lines and rules."""


@dataclass(frozen=True)
class Violation:
    """One broken rule."""

    node: str
    rule: str
    message: str
    user_line: str

    def __str__(self) -> str:
        return f"node {self.node}, rule {self.rule}: {self.message}{self.user_line}"


def where_from(node: fx.Node | None) -> str:
    """The user's last line in `node`'s stack trace, to append to a message; empty if unknown."""
    trace = (node.meta.get("stack_trace") if node is not None else None) or ""
    lines = [line.strip() for line in trace.strip().splitlines()]
    return f" (from {' '.join(lines[-2:])})" if lines else ""


def verify(gm: fx.GraphModule, *, leaves: bool = True) -> Counter[str]:
    """Check `gm` against every rule; return the ATen operations in it and how often each occurs.

    With `leaves=False` an ATen operation is a violation as well. Raises `DialectError` that lists
    all violations.
    """
    violations = [
        Violation(node.name, rule, message, where_from(node))
        for node in gm.graph.nodes
        for rule, check in _RULES.items()
        for message in check(node)
    ]
    found = aten_leaves(gm)
    if not leaves:
        violations += [
            Violation(node.name, "targets", f"{node.target} is not a prim", where_from(node))
            for node in gm.graph.nodes
            if _is_leaf(node)
        ]
    if violations:
        listing = "\n".join(f"  {violation}" for violation in violations)
        raise DialectError(f"{len(violations)} violations of the prims dialect:\n{listing}")
    return found


def aten_leaves(gm: fx.GraphModule) -> Counter[str]:
    """The operations that no decomposition has replaced, and how often each occurs."""
    return Counter(str(node.target) for node in gm.graph.nodes if _is_leaf(node))


def _is_leaf(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and isinstance(node.target, OpOverload)
        and prim_of(node.target) is None
        and not is_size(node)
    )


def is_size(node: fx.Node) -> bool:
    """Whether a node computes a size: reads it off a tensor, or is arithmetic on sizes."""
    return node.target is SIZE_OF or (
        node.target in ARITHMETIC and not isinstance(node.meta.get("val"), torch.Tensor)
    )


def _targets(node: fx.Node) -> Iterator[str]:
    if node.op in ("call_method", "call_module"):
        yield f"{node.op} {node.target}; only call_function is allowed"
    elif node.op == "call_function":
        known = isinstance(node.target, OpOverload) or node.target is operator.getitem
        if not known and not is_size(node):
            yield f"{node.target} is neither a prim nor an ATen overload"


def _values(node: fx.Node) -> Iterator[str]:
    if node.op != "output" and "val" not in node.meta:
        yield 'meta["val"] is missing'


def _shapes(node: fx.Node) -> Iterator[str]:
    prim = prim_of(node.target)
    if prim is None or any("val" not in n.meta for n in (node, *node.all_input_nodes)):
        return  # a missing value is reported by its own rule
    try:
        promised = _promised(prim, node)
    except SizeUnknown:
        return  # the operands are right; what comes out is known when it is there
    except PrimError as error:
        yield str(error)
        return
    given = node.meta["val"]
    parts = given if isinstance(given, (list, tuple)) else (given,)
    stated = tensor_metas([_known(part) for part in parts])
    if len(promised) != len(stated):
        yield f"{len(stated)} results where the rule gives {len(promised)}"
        return
    for rule, val in zip(promised, stated, strict=True):
        if (rule.shape, rule.dtype, rule.device) != (val.shape, val.dtype, val.device):
            yield f'meta["val"] is {_spell(val)}, the rule gives {_spell(rule)}'


def _promised(prim: Prim, node: fx.Node) -> list[TensorMeta]:
    def meta(item: Any) -> Any:
        return _known(item.meta.get("val"))

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), meta)
    result = prim.rule(*args, **kwargs)
    return tensor_metas([result])


def _known(val: Any) -> Any:
    """Metadata of a tensor, which a node may have in its place; anything else itself."""
    return TensorMeta.of(val) if isinstance(val, torch.Tensor) else val


def _spell(meta: TensorMeta) -> str:
    return f"{spell(meta)} on {meta.device}"


def _effects(node: fx.Node) -> Iterator[str]:
    if not isinstance(node.target, OpOverload) or not is_mutable(node.target):
        return
    prim = prim_of(node.target)
    if prim is None:
        yield f"{node.target} writes to its argument"
        return
    written = node.args[0]
    if not isinstance(written, fx.Node) or written.op not in ("placeholder", "get_attr"):
        yield f"{prim.name} writes to {written}, which is not an input of the graph"


def _outputs(node: fx.Node) -> Iterator[str]:
    if node.op == "output" and not isinstance(node.args[0], (tuple, list)):
        is_a = type(node.args[0]).__name__
        yield f"the output is a {is_a}, not a tuple: let what was traced return `(result,)`"


_RULES: dict[str, Callable[[fx.Node], Iterator[str]]] = {
    "targets": _targets,
    "values": _values,
    "shapes": _shapes,
    "effects": _effects,
    "outputs": _outputs,
}
