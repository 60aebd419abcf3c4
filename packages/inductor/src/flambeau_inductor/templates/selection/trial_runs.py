"""Trial runs of kernels and library calls on stand-in tensors.

In: steps of a program, kernels by the names of their loops. Out: callables without arguments.
Invariant: nothing of the caller's is read or written: every buffer is a new tensor with the layout
that the program says, floats drawn at random, integers zero (a position that is always there).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from flambeau_inductor._torch_compat import out_names, overload_of
from flambeau_inductor.autotune import Budget
from flambeau_inductor.autotune.buffers import stand_in
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


class Bench:
    """Tensors of a few buffers and what runs on them."""

    def __init__(
        self, layouts: Mapping[str, Layout], budget: Budget, library: Library | None = None
    ) -> None:
        self._layouts = layouts
        self._budget = budget
        self._library = library
        self._tensors: dict[str, torch.Tensor] = {}

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor that stands for a buffer."""
        found = self._tensors.get(name)
        if found is None:
            found = self._tensors[name] = stand_in(self._layouts[name])
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
                if self._budget.over:
                    break
                some = kernels[first : first + AT_ONCE]
                for name, launcher in build(
                    path, some, self._library, AT_ONCE, lenient=True
                ).items():
                    (kernel,) = (k for k in some if k.name == name)
                    tensors = [self.tensor(each) for each in kernel.arguments]
                    found[name] = partial(launcher, *tensors)
        return {kernel.name: found.get(kernel.name, _late) for kernel in kernels}

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


def _late() -> None:
    raise OutOfTime("no time was left to compile it")


def in_order(*runs: Run) -> Run:
    """One run after the other."""

    def run() -> None:
        for each in runs:
            each()

    return run
