"""Emission of scans.

In: the values of a pass. Out: a variable `c<position>` for each scan among them, declared and taken
a step further. Invariant: the elements of a row are taken in their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.dtypes import literal
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.codegen.cpp.text import SourceLines
from flambeau_inductor.ir.loops import Scan, ValueId

# the operation of a scan, and what it starts with
SCANS = {"sum": ("add", 0), "prod": ("mul", 1), "logsumexp": ("log_add_exp", -math.inf)}


def scans_among(plan: LoopPlan, needed: Iterable[ValueId]) -> list[tuple[ValueId, Scan]]:
    """The scans among the values of a pass."""
    body = plan.loop.body
    return [(v, i) for v in sorted(needed) if isinstance(i := body[v], Scan)]


def begin(text: SourceLines, values: KernelVariables, value: ValueId, scan: Scan) -> None:
    """Declare a running value, at its start."""
    vector = values.plan.is_vector(value)
    start = literal(SCANS[scan.kind][1], scan.dtype)
    spread = f"splat{values.width}({start})" if vector else start
    text(f"{values.type_of(scan.dtype, vector)} c{value} = {spread};")


def begin_tile(
    text: SourceLines, values: KernelVariables, value: ValueId, scan: Scan, tile: int
) -> None:
    """The same for `tile` vectors of columns."""
    start = literal(SCANS[scan.kind][1], scan.dtype)
    text(f"{values.type_of(scan.dtype, True)} c{value}s[{tile}];")
    text(f"for (int u = 0; u < {tile}; ++u) c{value}s[u] = splat{values.width}({start});")


def refer(text: SourceLines, values: KernelVariables, value: ValueId, scan: Scan) -> None:
    """Inside `columns.each_column`: the running value of this column under its usual name."""
    text(f"{values.type_of(scan.dtype, True)}& c{value} = c{value}s[u];")


def advance(text: SourceLines, values: KernelVariables, value: ValueId, scan: Scan) -> None:
    """Take one more element into a running value."""
    taken = values.operand(scan.arg, values.plan.is_vector(value))
    text(f"c{value} = {SCANS[scan.kind][0]}(c{value}, {taken});")
    text(f"const auto v{value} = c{value};")
