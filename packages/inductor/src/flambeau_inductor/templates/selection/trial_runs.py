"""Trial runs of kernels and library calls, and the check of the former against the latter.

In: steps of a program, kernels by the names of their loops. Out: callables without arguments; one
that raises in place of a candidate that gave other numbers than the library, beyond rounding.
Invariant: nothing of the caller's is read or written: every buffer is a new tensor of the program's
layout, floats drawn at random, integers zero (a position that is always there).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flambeau_inductor._torch_compat import out_names, overload_of
from flambeau_inductor.autotune import Budget
from flambeau_inductor.autotune.benchmark import stand_in
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.ir.program import Argument, Extern, Layout, Ref
from flambeau_inductor.runtime.gpu.launch import Library
from flambeau_inductor.runtime.memory import seen_as
from flambeau_inductor.templates.gemm.problem import Matrix

Run = Callable[[], object]
AT_ONCE = 16
"""Kernels that are compiled side by side, before the budget is looked at again."""


@dataclass
class Bench:
    """Tensors of a few buffers and what runs on them."""

    layouts: Mapping[str, Layout]
    budget: Budget
    library: Library | None = None
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def tensor(self, name: str) -> torch.Tensor:
        found = self.tensors.get(name)
        if found is None:
            found = self.tensors[name] = stand_in(self.layouts[name])
        return found

    def fill(self, matrix: Matrix, values: torch.Tensor) -> None:
        """Put a row of numbers where a kernel reads them."""
        row = seen_as(self.tensor(matrix.buffer), values.shape, matrix.strides[2:], matrix.offset)
        row.copy_(values)

    def call(self, step: Extern) -> Run:
        """A library call, which writes into given tensors or makes its own."""
        operator = overload_of(step.target)
        args = [self._argument(a) for a in step.args]
        kwargs = {k: self._argument(v) for k, v in step.kwargs}
        keywords = out_names(operator) if step.into else ()
        kwargs |= {k: self._argument(r) for k, r in zip(keywords, step.into, strict=True)}
        return lambda: operator(*args, **kwargs)

    def kernels(self, kernels: Sequence[TritonKernel]) -> dict[str, Run]:
        """Each kernel, compiled, on its buffers; what cannot be compiled, or not in the time left,
        raises when it is run."""
        found: dict[str, Run] = {}
        with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
            path = Path(folder) / "kernels.py"
            path.write_text(module_text([kernel.source for kernel in kernels]))
            for first in range(0, len(kernels), AT_ONCE):
                if self.budget.over:
                    break
                some = kernels[first : first + AT_ONCE]
                for name, launcher in build(
                    path, some, self.library, AT_ONCE, lenient=True
                ).items():
                    (kernel,) = (k for k in some if k.name == name)
                    tensors = [self.tensor(each) for each in kernel.arguments]
                    found[name] = partial(launcher, *tensors)
        late = raising(OutOfTime("no time was left to compile it"))
        return {kernel.name: found.get(kernel.name, late) for kernel in kernels}

    def _argument(self, argument: Argument) -> Any:
        if isinstance(argument, Ref):
            tensor = self.tensor(argument.buffer)
            if argument.layout is None:
                return tensor
            shape, stride, offset = argument.layout.static()
            return seen_as(tensor, shape, stride, offset)
        if isinstance(argument, tuple):
            return [self._argument(each) for each in argument]
        return argument


class OutOfTime(Exception):
    """The budget was spent before this could be compiled."""


def raising(error: Exception) -> Run:
    def run() -> None:
        raise error

    return run


def in_order(*runs: Run) -> Run:
    def run() -> None:
        for each in runs:
            each()

    return run


FAR = 0.05
"""Of a result's length: far more than rounding, far less than a wrong tile."""
MISSING = 1e-3
"""Share of elements that may be finite in one of both only (where scores overflow)."""
MOST = 1 << 22
"""Elements that are compared at each end."""


class OtherNumbers(Exception):
    """A candidate does not compute what the library does."""


def agreeing(
    bench: Bench, library: Run, ways: Mapping[str, Run], results: Sequence[str]
) -> dict[str, Run]:
    """The runs of `ways`; `library` leaves in the buffers `results` what each is to leave there,
    and as it was what they leave."""
    _clear(bench, results)
    library()
    expected = {name: [end.clone() for end in _ends(bench.tensor(name))] for name in results}
    return {name: _checked(bench, run, expected) for name, run in ways.items()}


def distance(expected: Tensor, found: Tensor) -> float:
    """How far `found` is from `expected`, as a share of its length; of numbers that are not
    floating point, the share that differs."""
    if not expected.is_floating_point():
        return float((expected != found).float().mean())
    a, b = expected.float(), found.float()
    finite = a.isfinite() & b.isfinite()
    if float((a.isfinite() ^ b.isfinite()).float().mean()) > MISSING:
        return float("inf")
    zero = torch.zeros((), device=a.device)
    off = torch.where(finite, a - b, zero).norm()
    return float(off / torch.where(finite, a, zero).norm().clamp(min=1e-30))


def _checked(bench: Bench, run: Run, expected: Mapping[str, Sequence[Tensor]]) -> Run:
    _clear(bench, expected)
    try:
        run()
    except Exception:  # the race runs it again, and names what it raises
        return run
    far = max(
        distance(end, found)
        for name, ends in expected.items()
        for end, found in zip(ends, _ends(bench.tensor(name)), strict=True)
    )
    away = f"its numbers are {far:.2g} of the result's length from the library's"
    return raising(OtherNumbers(away)) if far > FAR else run


def _clear(bench: Bench, names: Iterable[str]) -> None:
    """What nobody writes is the same wherever it is looked for."""
    for name in names:
        tensor = bench.tensor(name)
        tensor.fill_(float("nan") if tensor.is_floating_point() else 1)


def _ends(tensor: Tensor) -> tuple[Tensor, ...]:
    if tensor.numel() <= 2 * MOST:
        return (tensor,)
    rows = max(1, MOST * tensor.shape[0] // tensor.numel())
    return tensor[:rows], tensor[-rows:]
