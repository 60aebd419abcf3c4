"""Reductions: accumulators, their kinds, pairwise summation.

In: the plan and the reductions of one pass. Out: lines that declare, update and merge accumulators.
Invariant: totals are called `a<position>`, the partial sums merged into them `b<position>`, and in
a tile of columns each has an array, `a<position>s`; sums are merged in a fixed order, so results do
not depend on the number of threads, and their error grows with the logarithm of the row's length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.dtypes import ROUNDED, limit, literal, spelling_of
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.indexing import Expr, surely_less
from flambeau_inductor.ir.loops import Reduce, ValueId

SIMPLE = {
    "sum": ("add", "across_sum"),
    "prod": ("mul", "across_prod"),
    "max": ("maximum", "across_max"),
    "min": ("minimum", "across_min"),
    "any": ("bitwise_or", "across_any"),
    "all": ("bitwise_and", "across_all"),
}
SUFFIXES = {"argmax": ("", "_at"), "argmin": ("", "_at"), "welford": ("", "_m2", "_n")}
NOWHERE = "0x7fffffff"


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One reduction in one pass. `width` is 1 for scalars; `dtype` that of the argument."""

    kind: str
    name: str
    dtype: torch.dtype
    width: int

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """(suffix, lane type) of the variables that hold it."""
        value = spelling_of(self.dtype).value
        if self.kind not in SIMPLE and self.kind not in SUFFIXES:
            raise CppUnsupported(f"no C++ kernel for the reduction {self.kind}")
        suffixes = SUFFIXES.get(self.kind, ("",))
        return tuple((suffix, "i32" if suffix == "_at" else value) for suffix in suffixes)

    @property
    def cascades(self) -> bool:
        """Whether long runs are summed in blocks to keep rounding errors small."""
        return self.kind == "sum" and spelling_of(self.dtype).is_float

    def type_of(self, lane: str) -> str:
        """C++ type of a variable with that lane type."""
        return lane if self.width == 1 else f"{lane}x{self.width}"

    def spread(self, text: str, lane: str) -> str:
        """A scalar text in the accumulator's flavour."""
        return f"({lane})({text})" if self.width == 1 else f"splat{self.width}(({lane})({text}))"

    def identity(self) -> tuple[str, ...]:
        """Starting values of the fields, as scalar texts."""
        if self.kind in ("max", "argmax", "min", "argmin"):
            first = literal(limit(self.dtype, low=self.kind.endswith("max")), self.dtype)
        else:
            first = literal({"prod": 1, "all": True}.get(self.kind, 0), self.dtype)
        if self.kind in SIMPLE:
            return (first,)
        if self.kind == "welford":
            return (literal(0, self.dtype),) * 3
        return (first, NOWHERE)

    def declare(self, name: str) -> list[str]:
        """Variables called `name`, at their identities."""
        return [
            f"{self.type_of(lane)} {name}{suffix} = {self.spread(start, lane)};"
            for (suffix, lane), start in zip(self.fields, self.identity())
        ]

    def update(self, name: str, value: str, position: str) -> list[str]:
        """Take in `value`, at `position` in the row. Lanes beyond `n` hold nothing."""
        if self.kind in SIMPLE:
            if self.kind in ("max", "min"):
                # NaN is tested on the value, off the accumulator's dependence chain
                return [f"{name} = {SIMPLE[self.kind][0]}({value}, {name});"]
            return [f"{name} = {SIMPLE[self.kind][0]}({name}, {value});"]
        if self.kind == "welford":
            lane = spelling_of(self.dtype).value
            one = self.spread("1", lane)
            if self.width > 1:
                one = f"keep({one}, ({lane})0, n)"
            return [f"welford_add(&{name}, &{name}_m2, &{name}_n, {value}, {one});"]
        return [self._better(name, value, position)]

    def _better(self, name: str, value: str, position: str) -> str:
        nan = "arg_float" if spelling_of(self.dtype).is_float else "arg_whole"
        order = "gt" if self.kind == "argmax" else "lt"
        return f"{nan}_{order}(&{name}, &{name}_at, {value}, {position});"

    def merge(self, name: str, other: tuple[str, ...]) -> str:
        """Take in another accumulator, given by the texts of its fields."""
        if self.kind in SIMPLE:
            return f"{name} = {SIMPLE[self.kind][0]}({name}, {other[0]});"
        if self.kind == "welford":
            return f"welford_merge(&{name}, &{name}_m2, &{name}_n, {', '.join(other)});"
        return self._better(name, other[0], other[1])

    def padded(self, value: str) -> str:
        """`value` with the identity in the lanes that are not in use."""
        if self.kind == "welford":
            return value
        lane = self.fields[0][1]
        return f"keep({value}, ({lane})({self.identity()[0]}), n)"

    def across(self, result: str) -> list[str]:
        """Combine the lanes of vector accumulators into scalars named after `result`."""
        if self.kind in SIMPLE:
            lane = self.fields[0][1]
            return [f"const {lane} {result} = {SIMPLE[self.kind][1]}({self.name});"]
        scalar = Accumulator(self.kind, f"{result}_s", self.dtype, 1)
        lanes = tuple(f"{self.name}{suffix}[l]" for suffix, _ in self.fields)
        return [
            *scalar.declare(scalar.name),
            f"for (int l = 0; l < {self.width}; ++l) {scalar.merge(scalar.name, lanes)}",
            *scalar.named(result),
        ]

    def results(self, result: str) -> list[tuple[str, str, str]]:
        """The row values of an accumulator whose flavour is that of the row: names, texts and
        types."""
        value = self.type_of(spelling_of(self.dtype).value)
        if self.kind in SIMPLE:
            return [(result, self.name, value)]
        if self.kind == "welford":
            return [(f"{result}_0", self.name, value), (f"{result}_1", f"{self.name}_m2", value)]
        return [(result, f"to_i64({self.name}_at)", self.type_of("i64"))]

    def named(self, result: str) -> list[str]:
        """Lines that declare them."""
        return [f"const auto {name} = {text};" for name, text, _ in self.results(result)]


def accumulator_of(
    reduce: Reduce, name: str, dtype: torch.dtype, width: int, length: int | Expr
) -> Accumulator:
    """The accumulator of `reduce` over `length` values of `dtype`; refuses what would be wrong."""
    arg = reduce.kind in ("argmax", "argmin")
    if arg and not surely_less(length, 2**31):
        raise CppUnsupported(f"{reduce.kind} over {length} elements: positions have 31 bits")
    if not arg and reduce.dtype is not dtype:
        raise CppUnsupported(f"{reduce.kind} of {dtype} into {reduce.dtype}: cast first")
    if reduce.kind in ("any", "all") and dtype is not torch.bool:
        raise CppUnsupported(f"{reduce.kind} of {dtype}: compare with zero first")
    if dtype is torch.bool and reduce.kind not in ("any", "all"):
        raise CppUnsupported(f"{reduce.kind} of bools: cast first")
    if dtype in ROUNDED and reduce.kind in ("sum", "prod", "welford"):
        raise CppUnsupported(f"{reduce.kind} in {dtype}: half-precision sums are not formed")
    return Accumulator(reduce.kind, name, dtype, width)


# steps of the innermost loop that go into one partial sum
BLOCK_STEPS = 64
# a nest shorter than this is summed directly
DIRECT_STEPS = 128


def cascade_depth(plan: LoopPlan) -> int | None:
    """Depth of the loop whose sum is a partial one; the number of loops: cut the innermost. None
    where the row is short."""
    r = plan.loop.r
    steps = [_steps(plan, a.var) for a in r]
    if prod(steps) <= DIRECT_STEPS:
        return None
    if steps[-1] > BLOCK_STEPS:
        return len(r)
    together = 1
    for depth in range(len(r) - 1, 0, -1):
        together *= steps[depth]
        if together * 2 >= BLOCK_STEPS:
            return depth
    return None


def _steps(plan: LoopPlan, var: str) -> int:
    size = plan.sizes[var]
    steps = -(-size // plan.width) if var == plan.vector else size
    # an open axis may be long in another call
    return steps if plan.exact(var) is not None else max(steps, 2 * DIRECT_STEPS)


TOTAL, PARTIAL = "a", "b"


class Accumulators:
    """`tile`: how many vectors of columns they are kept for, 0 where there is no tile."""

    def __init__(self, values: KernelVariables, reduces: Sequence[tuple[ValueId, Reduce]]) -> None:
        self.values = values
        plan = values.plan
        self.tile = 0
        self.by_position: dict[ValueId, Accumulator] = {
            position: accumulator_of(
                instr, f"{TOTAL}{position}", values.dtype(instr.arg), plan.width, plan.length
            )
            for position, instr in reduces
        }

    def __bool__(self) -> bool:
        return bool(self.by_position)

    @property
    def cascade(self) -> bool:
        """Whether some are formed of partial sums where their row is long."""
        return any(a.cascades for a in self.by_position.values())

    def growing(self, cascades: bool) -> list[tuple[Accumulator, str]]:
        """Those that the innermost loop adds to, with their names."""
        return [(a, self.name(p, cascades)) for p, a in self.by_position.items()]

    def name(self, position: ValueId, cascades: bool) -> str:
        """What an element goes into; `cascades`: partial sums are formed here."""
        partial = cascades and self.by_position[position].cascades
        return f"{PARTIAL if partial else TOTAL}{position}"

    def _called(self, prefix: str) -> Iterator[tuple[ValueId, Accumulator]]:
        for position, accumulator in self.by_position.items():
            if prefix == TOTAL or accumulator.cascades:
                yield position, accumulator

    def declare(self, prefix: str) -> None:
        """Totals, or partial sums, at their identities."""
        for position, accumulator in self._called(prefix):
            if not self.tile:
                for line in accumulator.declare(f"{prefix}{position}"):
                    self.values.text(line)
                continue
            for (suffix, lane), start in zip(accumulator.fields, accumulator.identity()):
                name = f"{prefix}{position}{suffix}s"
                self.values.text(f"{accumulator.type_of(lane)} {name}[{self.tile}];")
                self.values.text(
                    f"for (int u = 0; u < {self.tile}; ++u) "
                    f"{name}[u] = {accumulator.spread(start, lane)};"
                )

    def refer(self, prefix: str) -> None:
        """Inside `each_column`: those of this column under their usual names."""
        for position, accumulator in self._called(prefix):
            for suffix, lane in accumulator.fields:
                name = f"{prefix}{position}{suffix}"
                self.values.text(f"{accumulator.type_of(lane)}& {name} = {name}s[u];")

    def merge_partial(self) -> None:
        """Take the partial sums into the totals."""
        for position, accumulator in self._called(PARTIAL):
            self.values.text(accumulator.merge(f"{TOTAL}{position}", (f"{PARTIAL}{position}",)))

    def name_results(self) -> list[tuple[str, str]]:
        """Inside `each_column`: what the reductions of this pass give, with its types."""
        found: list[tuple[str, str]] = []
        self.refer(TOTAL)
        for position, accumulator in self.by_position.items():
            for line in accumulator.named(f"v{position}"):
                self.values.text(line)
            found += [(name, kind) for name, _, kind in accumulator.results(f"v{position}")]
        return found
