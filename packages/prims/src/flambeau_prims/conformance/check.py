"""Execution of a backend on programs, with the outcome of each.

In: a backend, `backend(gm, inputs) -> callable(*inputs) -> tuple of tensors`, and what it declares
itself unable to do. Out: an `KitOutcome` a program.
Invariant: whatever a backend does wrong (an exception, a wrong value, a write to an input) is an
outcome, never an exception of the kit.

Dispatch mode that decomposes a running program. In: any eager code. Out: the same results, computed
through prims. Invariant: an operation is decomposed once; the prims and leaves inside run as they
are.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, fx

from flambeau_prims._op import NotYetSymbolic
from flambeau_prims._torch_compat import DispatchMode, OpOverload
from flambeau_prims.conformance.compare import JudgedOutput, verdict
from flambeau_prims.conformance.programs.programs import KitProgram
from flambeau_prims.conformance.relations import RELATIONS
from flambeau_prims.conformance.samples.tensors import CPU, moved
from flambeau_prims.decomposition_choice import decompositions
from flambeau_prims.decomposition_table import Decomposition
from flambeau_prims.shape_rules import TensorMeta

Backend: TypeAlias = Callable[[fx.GraphModule, list[Tensor]], Callable[..., Any]]
Status = Literal["right", "wrong", "error", "declared"]


@dataclass(frozen=True)
class Declaration:
    """What a backend says it cannot do, each with the reason; the score card shows it.

    A backend function carries it as its attribute `declares`.
    """

    dtypes: Mapping[torch.dtype, str] = field(default_factory=dict)
    prims: Mapping[str, str] = field(default_factory=dict)
    strides: bool = True

    def reason(self, program: KitProgram) -> str | None:
        """Why the backend need not run `program`; None if it must."""
        for dtype, why in self.dtypes.items():
            if dtype in program.dtypes:
                return f"{str(dtype).removeprefix('torch.')}: {why}"
        for name, why in self.prims.items():
            if name in program.prims:
                return f"{name}: {why}"
        return None


@dataclass(frozen=True)
class KitOutcome:
    """What a backend made of a program; `message` names the output and what is wrong with it."""

    program: KitProgram
    status: Status
    message: str = ""


def declaration(backend: Backend) -> Declaration:
    """What `backend` declares; nothing if it does not say."""
    declared = getattr(backend, "declares", None)
    return declared if isinstance(declared, Declaration) else Declaration()


def check(backend: Backend, program: KitProgram) -> KitOutcome:
    """Compile and run `program` with `backend`, and judge what it returns."""
    declared = declaration(backend)
    if (reason := declared.reason(program)) is not None:
        return KitOutcome(program, "declared", reason)
    try:
        for inputs in (program.inputs, *program.others):
            replace(program, inputs=inputs).eager()
    except Exception as error:  # of this device; on a CPU tests hold that there is none
        return KitOutcome(program, "declared", f"no eager kernel: {str(error).splitlines()[0]}")
    try:
        compiled = backend(program.gm, program.fresh_inputs())
        message = _run(compiled, program, declared.strides)
        for others in program.others:
            message = message or _run(compiled, replace(program, inputs=others), declared.strides)
    except NotYetSymbolic as error:
        return KitOutcome(program, "declared", f"symbols: {error}")
    except Exception as error:  # whatever the backend raises is its result
        lines = str(error).strip().splitlines() or [""]
        return KitOutcome(program, "error", f"{type(error).__name__}: {lines[0]}")
    return KitOutcome(program, "wrong" if message else "right", message or "")


def _run(compiled: Callable[..., Any], program: KitProgram, strides: bool) -> str | None:
    torch.manual_seed(0)
    inputs = program.fresh_inputs()
    return _judged(program, compiled(*inputs), inputs, strides)


def _judged(program: KitProgram, got: Any, inputs: Sequence[Tensor], strides: bool) -> str | None:
    if not isinstance(got, (tuple, list)) or len(got) != len(program.judges):
        size = len(got) if isinstance(got, (tuple, list)) else type(got).__name__
        return f"returned {size}, not a tuple of {len(program.judges)}"
    torch.manual_seed(0)
    eager, after = program.eager()
    reference = program.reference()
    nodes = next(n for n in program.gm.graph.nodes if n.op == "output").args[0]
    for i, (judge, mine, theirs, node) in enumerate(
        zip(program.judges, got, eager, nodes, strict=True)
    ):
        wide = None if reference is None else reference[i]
        promise = TensorMeta.of(node.meta["val"])
        if not all(isinstance(size, int) for size in promise.shape):
            promise = TensorMeta.of(theirs)  # as many as the elements say
        output = JudgedOutput(mine, theirs, wide, promise)
        if (message := verdict(judge, output, strides=strides)) is not None:
            part = f" ({program.parts[i]})" if program.parts else ""
            return f"output {i}{part} {message}"
    for case, first, count in program.calls:
        if (relation := RELATIONS.get(case.prim.name)) is not None:
            results = slice(first, first + count)
            args = moved(case.args, CPU)
            message = relation(args, moved(got[results], CPU), moved(eager[results], CPU))
            if message is not None:
                return f"{case.label}: {message}"
    for i, (mine, theirs) in enumerate(zip(inputs, after, strict=True)):
        expected = JudgedOutput(mine, theirs, None, TensorMeta.of(theirs))
        if verdict("exact", expected) is not None:
            what = "is not what was to be written" if i in program.written else "was written to"
            return f"input {i} {what}"
    return None


def load_backend(name: str) -> Backend:
    """The function that `module:function` names; modules of the current folder are found too.

    Raises `LookupError`.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise LookupError(f"a backend is named like mypkg.module:function, not {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"cannot load the backend {name!r}: {error}") from error
    if not callable(found):
        raise LookupError(f"{name!r} is not a function")
    backend: Backend = found
    return backend


class Decomposing(DispatchMode):
    """`with Decomposing() as seen:` runs ATen operations through the table, below autograd.

    `decomposed` and `left` count, by name, what was and what was not in the table.
    """

    def __init__(self, table: Mapping[OpOverload, Decomposition] | None = None) -> None:
        super().__init__()
        self.table = decompositions() if table is None else table
        self.decomposed: Counter[str] = Counter()
        self.left: Counter[str] = Counter()

    def dispatched(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (function := self.table.get(op)) is not None:
            result = function(*args, **kwargs)
            if result is not NotImplemented:
                self.decomposed[str(op)] += 1
                return result
        self.left[str(op)] += 1
        return op(*args, **kwargs)
