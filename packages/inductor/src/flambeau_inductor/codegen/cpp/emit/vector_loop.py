"""The vectorised innermost loop and its tail.

In: the bounds of the loop, the accumulators that grow in it, what is done for a vector. Out: the
loop: several vectors at a time where the body is short, so that the latency of one accumulator does
not set the pace, then one at a time, then the rest. Invariant: each copy of an accumulator is
merged into it in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.emit.reductions import Accumulator
from flambeau_inductor.codegen.cpp.text import SourceLines

Growing = Sequence[tuple[Accumulator, str]]


def emit_vector_loop(
    plan: LoopPlan,
    text: SourceLines,
    var: str,
    limits: tuple[str, str],
    growing: Growing,
    copies: int,
    body: Callable[[], None],
) -> None:
    """The loop over axis `var`, with `copies` of each accumulator. `body` has `n`, the lanes in
    use, and the accumulators under their names."""
    low, high = limits
    width, size, exact = plan.width, plan.sizes[var], plan.exact(var)
    if exact is not None and exact < width:
        with text.block(f"for (long {var} = {low}; {var} < {high}; {var} += {width})"):
            text(f"const long n = {high} - {var};")
            body()
        return
    for accumulator, name in growing:
        for copy in range(1, copies):
            for line in accumulator.declare(f"{name}_{copy}"):
                text(line)
    references = [
        f"{a.type_of(lane)}& {name}{suffix}" for a, name in growing for suffix, lane in a.fields
    ]
    head = ", ".join([f"const long {var}", "auto n", *references])
    with text.block(f"auto step = [=]({head}) __attribute__((always_inline))", "};"):
        body()

    def call(offset: int, lanes: str, copy: int) -> str:
        own = [
            f"{name}{f'_{copy}' if copy else ''}{suffix}"
            for a, name in growing
            for suffix, _ in a.fields
        ]
        return f"step({', '.join([f'{var} + {offset}' if offset else var, lanes, *own])});"

    full = f"width<{width}>{{}}"
    text(f"long {var} = {low};")
    if copies > 1:
        reach = copies * width
        with text.block(f"for (; {var} + {reach} <= {high}; {var} += {reach})"):
            for copy in range(copies):
                text(call(copy * width, full, copy))
    # a piece may end anywhere, but only the last one ends inside a vector
    if copies == 1 or (size // width) % copies or _vary(low, high):
        text(f"for (; {var} + {width} <= {high}; {var} += {width}) {call(0, full, 0)}")
    if exact is None or exact % width:
        text(f"if ({var} < {high}) {call(0, f'(long)({high} - {var})', 0)}")
    for accumulator, name in growing:
        for copy in range(1, copies):
            other = tuple(f"{name}_{copy}{suffix}" for suffix, _ in accumulator.fields)
            text(accumulator.merge(name, other))


def copies_of(plan: LoopPlan, size: int, price: int) -> int:
    """How many accumulators to keep in a loop of `size` points, the values of each of which cost
    `price`: enough to hide the latency of an addition."""
    if size < 8 * plan.width:
        return 1
    if plan.form.accumulators is not None:
        return plan.form.accumulators
    return 4 if price <= 8 else 2 if price <= 32 else 1


def _vary(low: str, high: str) -> bool:
    """Whether the bounds of a loop are not both known when it is printed."""
    return not (low.isdigit() and high.isdigit())
