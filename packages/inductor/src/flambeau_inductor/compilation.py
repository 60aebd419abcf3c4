"""The state of one compile: what each stage made.

In: a graph and options. Out: a record that the stages fill in, each its own fields. Invariant: a
field is set by one stage and only read by later ones.
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
from flambeau_inductor.info import GraphInfo
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.tensors import TensorGraph
from flambeau_inductor.lowering.sizes import GraphSizes
from flambeau_inductor.options import Options
from flambeau_inductor.runtime.artifact import KernelPart
from flambeau_inductor.schedule import Merge, Refusal
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
class Compilation:
    """One compile, as far as it has come.

    `choices`: what was chosen by measurement or by what is known, in words, by the names of values
    and loops; `budget`: seconds that all measurements of it may take together; `faults`: why a
    choice was not kept, or had to be made anew.
    """

    given: fx.GraphModule
    example_inputs: Sequence[Any]
    info: GraphInfo
    options: Options
    name: str
    open_sizes: GraphSizes = field(default_factory=GraphSizes)
    graph: fx.GraphModule | None = None
    tensors: TensorGraph | None = None
    program: Program | None = None
    refusals: tuple[Refusal, ...] = ()
    merges: tuple[Merge, ...] = ()
    chosen_kernels: dict[str, TritonKernel] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)
    forms: dict[str, Form] = field(default_factory=dict)
    budget: Budget | None = None
    faults: list[str] = field(default_factory=list)
    kernels: tuple[KernelText, ...] = ()
    built: list[Built] = field(default_factory=list)
    wrapper: Wrapper | None = None
    call: Callable[[list[Any]], tuple[Any, ...]] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def rewritten(self) -> fx.GraphModule:
        """The graph after the rewrites."""
        assert self.graph is not None
        return self.graph

    def scheduled(self) -> Program:
        """The program."""
        assert self.program is not None
        return self.program

    def loops(self) -> list[Loop]:
        """The program's loops, in order."""
        return [s.loop for s in self.scheduled().steps if isinstance(s, RunLoop)]

    def dtypes(self) -> dict[str, torch.dtype]:
        """The dtype of every buffer."""
        return {b.name: b.layout.dtype for b in self.scheduled().buffers}
