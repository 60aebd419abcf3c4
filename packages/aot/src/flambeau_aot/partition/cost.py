"""Cost model of saving and of rematerialisation, both in bytes.

In: nodes with their fake values. Out: whole numbers; those of symbolic sizes are for the sizes of
this compile.
Invariant: costs are non-negative; `None` as a recompute cost means never.

Saving a value costs its size. Computing a fusible operator again costs a small part of its size:
the work itself is hidden by the memory traffic of the kernel it is fused into, but a chain that is
too long must not be free. A reduction reads its whole input again.
"""

from __future__ import annotations

import math
from typing import Any

from torch import fx

from flambeau_aot._torch_compat import hint
from flambeau_aot.interface import OpClass

# Parts of a byte of output (of input, for reductions) that one byte saved is worth.
_RECOMPUTE_PART: dict[OpClass, float] = {
    "view": 0.0,
    "creation": 0.001,
    "pointwise": 0.02,
    "shape": 0.05,
    "index": 0.10,
}
_REDUCTION_PART = 0.5
WRITE_PART = 0.25
"""What it costs to write a value to memory that would have stayed in a kernel's registers."""


def nbytes(value: Any) -> int:
    """The bytes the elements of a tensor, or of several, take; 0 for what is no tensor."""
    if isinstance(value, (list, tuple)):
        return sum(nbytes(item) for item in value)
    if not hasattr(value, "numel"):
        return 0
    return hint(value.numel()) * int(value.element_size())


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


# Operations that take the time of moving one byte: what a matrix unit does meanwhile.
_OPERATIONS_PER_BYTE = 32.0
_UNFUSED: tuple[OpClass, ...] = ("reduction", "matmul", "leaf", "random")


def work(node: fx.Node, kind: OpClass) -> float:
    """An estimate of an operator's time, in bytes moved.

    Fusible operators count what they write, others also what they read; matrix products,
    convolutions and attention at least their multiplications.
    """
    if kind == "view":
        return 0.0
    moved = float(nbytes(node.meta["val"]))
    if kind in _UNFUSED:
        moved += sum(nbytes(source.meta["val"]) for source in node.all_input_nodes)
    if kind in ("matmul", "leaf"):
        return max(moved, _multiplications(node) / _OPERATIONS_PER_BYTE)
    return moved


def _multiplications(node: fx.Node) -> float:
    """Multiplications of a product of matrices; of a convolution; of attention; 0 for others."""
    shapes = [tuple(map(hint, source.meta["val"].shape)) for source in _operands(node)]
    name = getattr(node.target, "__name__", "")
    results = _elements(node.meta["val"])
    if len(shapes) < 2:
        return 0.0
    if "attention" in name and len(shapes) >= 3 and len(shapes[1]) >= 2:
        products = 2.0 * math.prod(shapes[0]) * shapes[1][-2]
        return products * (2.5 if "backward" in name else 1.0)
    if "convolution" in name and len(shapes[1]) >= 3:
        if "backward" in name:
            return 2.0 * _elements(_operands(node)[0].meta["val"]) * math.prod(shapes[-1][1:])
        return results * math.prod(shapes[1][1:])
    if len(shapes[-2]) >= 2 and len(shapes[-1]) >= 2:
        return float(results * shapes[-2][-1])
    return 0.0


def _operands(node: fx.Node) -> list[fx.Node]:
    return [item for item in node.all_input_nodes if hasattr(item.meta["val"], "shape")]


def _elements(value: Any) -> float:
    if isinstance(value, (list, tuple)):
        return max((_elements(item) for item in value), default=0.0)
    return float(hint(value.numel())) if hasattr(value, "numel") else 0.0
