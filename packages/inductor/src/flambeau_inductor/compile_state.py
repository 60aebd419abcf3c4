"""The state of one compile: what each stage made.

In: a graph and options. Out: a record that the stages fill in, each its own fields. Invariant: a
field is set by one stage and only read by later ones; what passes hand to each other is the IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from flambeau_inductor.autotune.benchmark import Budget
from flambeau_inductor.codegen.cpp.analysis.variant import Form
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.driver import PassContext
from flambeau_inductor.info import GraphInfo
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.steps import loops_of
from flambeau_inductor.ir.tensors import TensorGraph
from flambeau_inductor.lowering.context import LibraryChoices
from flambeau_inductor.lowering.sizes import GraphSizes
from flambeau_inductor.runtime.kernel_part import KernelPart
from flambeau_inductor.schedule.tensor_program import Merge, Refusal, TensorProgram
from flambeau_inductor.scheduling_limits import Limits
from flambeau_inductor.tuning import tuning_of
from flambeau_inductor.wrapper import Wrapper
from flambeau_inductor.wrapper.source import LoopLaunch


@dataclass(frozen=True, slots=True)
class Built:
    """Kernels that can be called.

    functions: by the names that launches use. hit: they came from the cache. keep: what has to
    live as long as they. part: how another process loads them, None where none can. fault: why
    they could not be kept on the disk.
    """

    functions: Mapping[str, Any]
    hit: bool = False
    keep: tuple[object, ...] = ()
    part: KernelPart | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class KernelText:
    """Generated kernels of one language.

    `file` is the name under which debugging and reports show `text`; `build` gives the callable of
    each of the names that `launches` use.
    """

    file: str
    text: str
    distinct: int
    launches: Mapping[str, LoopLaunch]
    build: Callable[[], Built]


@dataclass(slots=True)
class Compilation(PassContext):
    """One compile, as far as it has come.

    library: what of torch's is used. tensors: lowered. schedule: its passes done. assembled:
    emitted as loops. program: its passes done, and with them `chosen_kernels`, `forms` and
    `choices`: what was chosen by measurement or by what is known, in words, by the names of values
    and loops. `budget`: seconds that all measurements may take together; `faults`: why a choice was
    not kept, or had to be made anew.
    """

    given: fx.GraphModule
    example_inputs: Sequence[Any]
    info: GraphInfo
    open_sizes: GraphSizes = field(default_factory=GraphSizes)
    graph: fx.GraphModule = field(init=False)
    library: LibraryChoices = field(default_factory=LibraryChoices)
    tensors: TensorGraph = field(init=False)
    schedule: TensorProgram = field(init=False)
    assembled: Program = field(init=False)
    program: Program = field(init=False)
    chosen_kernels: dict[str, TritonKernel] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    forms: dict[str, Form] = field(default_factory=dict)
    budget: Budget | None = None
    faults: list[str] = field(default_factory=list)
    kernels: tuple[KernelText, ...] = ()
    built: tuple[Built, ...] = ()
    wrapper: Wrapper = field(init=False)
    call: Callable[[list[Any]], tuple[Any, ...]] = field(init=False)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The graph's, for messages and files."""
        return self.info.name

    @property
    def limits(self) -> Limits:
        """The thresholds of scheduling, on the device that the tensor program runs on."""
        limits = self.options.limits
        known = hasattr(self, "tensors")
        return limits.on(tuning_of(self.tensors.devices())) if known else limits

    @property
    def merges(self) -> tuple[Merge, ...]:
        """Loops, and calls with what follows them, that became one."""
        return (*(Merge(*pair) for pair in self.tensors.absorbed), *self.schedule.merges)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """Loops that might have become one."""
        return self.schedule.refusals

    def rewritten(self) -> fx.GraphModule:
        """The graph after the rewrites."""
        return self.graph

    def scheduled(self) -> Program:
        """The program."""
        return self.program

    def loops(self) -> list[Loop]:
        """The program's loops, in order."""
        return loops_of(self.scheduled())

    def dtypes(self) -> dict[str, torch.dtype]:
        """The dtype of every buffer."""
        return {b.name: b.layout.dtype for b in self.scheduled().buffers}
