"""What saving a value costs, and what computing it again costs, both in bytes.

What comes in: nodes with their fake values. What goes out: whole numbers.
Invariant: costs are non-negative; `None` as a recompute cost means never.

Saving a value costs its size. Computing a fusible operator again costs a small part of its
size: the work itself is hidden behind the memory traffic of the kernel it is fused into, but a
chain that is too long must not be free. A reduction reads its whole input again.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from flambeau_aot.options import OpClass

# Parts of a byte of output (of input, for reductions) that one byte saved is worth.
_RECOMPUTE_PART: dict[OpClass, float] = {
    "view": 0.0,
    "creation": 0.001,
    "pointwise": 0.02,
    "shape": 0.05,
    "index": 0.10,
}
_REDUCTION_PART = 0.5


def nbytes(value: Any) -> int:
    """The bytes a tensor's elements take; 0 for what is no tensor."""
    if not hasattr(value, "numel"):
        return 0
    return int(value.numel()) * int(value.element_size())


def save_cost(node: fx.Node, kind: OpClass) -> int:
    """The cost of keeping a value; of two equal ones the value that is no view is cheaper."""
    size = nbytes(node.meta["val"])
    return size + 1 + (1 if kind == "view" else 0)


def recompute_cost(node: fx.Node, kind: OpClass) -> int | None:
    """The cost of computing a value again from its arguments."""
    if kind == "reduction":
        read = sum(nbytes(source.meta["val"]) for source in node.all_input_nodes)
        return int(read * _REDUCTION_PART)
    part = _RECOMPUTE_PART.get(kind)
    if part is None:
        return None
    return int(nbytes(node.meta["val"]) * part)
