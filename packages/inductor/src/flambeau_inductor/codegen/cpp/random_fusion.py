"""Fusion of a kernel with the random draws that it reads.

In: a `LoopPlan` and the buffer that the draws would go to. Out: `RandomFusion`, if the loop reads
them in the order in which they are drawn; the C++ function that Python calls. Invariant: the draws
are those of `flambeau/mersenne.h` for the whole buffer, whatever the number of threads and of rows
at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan, blocked_axis, shared_axis
from flambeau_inductor.codegen.cpp.emit.vector_loop import columns_at_once
from flambeau_inductor.indexing import Var, as_expr
from flambeau_inductor.ir.loops import Load, Store

AT_ONCE = 2048
"""Draws at a time: with the other reads of their loop they fit in the smallest cache."""
MOST = 1 << 16
"""Draws of a row, which lie on a thread's stack."""


@dataclass(frozen=True, slots=True)
class RandomFusion:
    """`mask`: the buffer of the draws; `rows` of `length` draws each, `piece` of them at a time.
    `beside`: buffers that are read where the draws are."""

    mask: str
    rows: int
    length: int
    piece: int
    beside: tuple[str, ...]


def fuse_with_draws(plan: LoopPlan, mask: str) -> RandomFusion | None:
    """How the rows of a loop can run after the draws of `mask`; None where they cannot."""
    loop = plan.loop
    if plan.open or plan.serial or plan.errors or plan.split_rows or not loop.x:
        return None
    if blocked_axis(plan) or shared_axis(plan) or columns_at_once(plan) > 1:
        return None
    order, step = as_expr(0), 1  # the number of a point in row-major order
    for axis in reversed(plan.axes):
        order = order + Var(axis.var) * step
        step *= plan.sizes[axis.var]
    reads = [i for i in loop.body if isinstance(i, Load) and i.buffer == mask]
    written = {i.buffer for i in loop.body if isinstance(i, Store)}
    if not reads or mask in written or any(i.index != order or i.mask is not None for i in reads):
        return None
    first = loop.x[0].var
    rows = plan.sizes[first]
    length = prod(plan.sizes.values()) // max(rows, 1)
    unit = plan.width if plan.vector == first else 1
    piece = -(-max(1, AT_ONCE // max(length, 1)) // unit) * unit
    if not rows or piece * length > MOST:
        return None
    beside = dict.fromkeys(
        i.buffer
        for i in loop.body
        if isinstance(i, Load) and i.index == order and i.buffer not in {mask, *written}
    )
    return RandomFusion(mask, rows, length, piece, tuple(beside))


def entry(
    number: int, how: RandomFusion, buffers: Sequence[str], kinds: Sequence[str], threads: int
) -> str:
    """The function that Python calls: after what `with_generator` is given come the limit of the
    draws and an address for each of `buffers`, that of the draws null where nobody keeps them."""
    first = 4
    count = first + len(buffers)
    place = buffers.index(how.mask)
    lines = [
        f"static PyObject* behind{number}(PyObject*, PyObject* const* arg, long count) {{",
        f"  if (count != {count}) return PyErr_Format(PyExc_TypeError, "
        f'"this kernel takes {count} arguments, not %ld", count);',
        "  const unsigned long limit = (unsigned long)PyLong_AsVoidPtr(arg[3]);",
    ]
    for k, kind in enumerate(kinds):
        lines.append(f"  const auto a{k} = ({kind})PyLong_AsVoidPtr(arg[{first + k}]);")
    given = ", ".join("mask" if k == place else f"a{k}" for k in range(len(buffers)))
    asked = " ".join(f"__builtin_prefetch(a{buffers.index(name)} + k);" for name in how.beside)
    lines += [
        "  if (PyErr_Occurred()) return nullptr;",
        "  return with_generator(arg, [&](Mersenne& generator) {",
        f"    rows_after_draws<{how.piece}, {how.length}>(",
        f"        generator, (unsigned char*)a{place}, {how.rows}, limit, {threads},",
        f"        [=](const b8* mask, long b, long e) {{ rows{number}({given}, b, e); }},",
        f"        [=]([[maybe_unused]] long k) {{ {asked} }});",
        "  });",
        "}",
    ]
    return "\n".join(lines) + "\n"
