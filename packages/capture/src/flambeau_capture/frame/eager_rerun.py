"""Eager rerun of a call whose graph raises.

In: a finished graph, what its operations did besides computing, the error that a call of it raised.
Out: whether anything of the call is left; the function that runs in its place. Invariant: the
program raises, and handles, what it does without capture, after the effects that come before: a
graph that leaves something is not run again. What torch does not raise when it runs the graph
operation by operator is a failure of the backend, which is told as a fault whatever the program
then does. An error with a true attribute `is_a_finding` is what a backend has found out, and
reaches the program.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import disabled
from flambeau_capture.breaks import UserLine
from flambeau_capture.errors import BackendError
from flambeau_capture.graph import functions
from flambeau_capture.graph.builder import GraphInput
from flambeau_capture.graph.effects import GraphEffects
from flambeau_capture.observe.records import RecordedFault, Records
from flambeau_capture.options import Options
from flambeau_capture.user_warnings import warn
from flambeau_capture.values.tensors.graph_calls import operator_name

CALL_OF_A_GRAPH = "a call of the compiled graph"
"""What a backend was doing whose failure is no answer to compiling."""


def what_it_leaves(
    graph: fx.Graph, inputs: Sequence[GraphInput], effects: GraphEffects
) -> str | None:
    """What of a call of the graph that raises may outlive it, in words; None: nothing."""
    if effects.other:
        return next(iter(effects.other))
    if any(given.is_made() for given in inputs):
        return "takes what is made for it"
    given = [node for node in graph.nodes if node.op in ("placeholder", "get_attr")]
    tensors = [value for node in given if isinstance(value := node.meta.get("val"), torch.Tensor)]
    if effects.writes_to(tensors):
        return "writes to what it was given"
    for node in graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output") and not _is_seen(node.target):
            return f"calls {operator_name(node.target)}"
    return None


def _is_seen(target: Any) -> bool:
    """Whether the dispatcher has seen all that a call does: it is a method of tensors, an operator,
    Python's own on numbers, or a function of torch's or of ours that is made of these."""
    if isinstance(target, str | torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    if target is compat.set_grad_enabled:
        return True
    module = getattr(target, "__module__", None) or type(target).__module__
    return module in _MODULES or module.startswith("torch._C")


_MODULES = frozenset(
    {
        "torch", "_operator", "math", "builtins", functions.__name__,
        *(getattr(place, "__name__", "torch") for place in compat.operator_namespaces()),
    }
)  # fmt: skip


def errors_of(module: fx.GraphModule, inputs: Sequence[Any]) -> list[Exception]:
    """What torch raises where it runs the graph operation by operation, of every operation that
    does not need the result of one that raises: a backend may run them in another order."""
    found: list[Exception] = []
    values: dict[fx.Node, Any] = dict(zip(_placeholders(module.graph), inputs, strict=True))
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    interpreter.env = values
    with compat.own_saved_tensors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the frame itself is yet to warn
        for node in module.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            if all(needed in values for needed in node.all_input_nodes):
                try:
                    values[node] = interpreter.run_node(node)
                except Exception as error:
                    found.append(error.with_traceback(None))
    return found


def _placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


class AsItIs:
    """Makes of a frame's function one that runs uncaptured, after its graph has raised."""

    def __init__(
        self,
        records: Records,
        options: Options,
        backend_name: str,
        module: fx.GraphModule,
        place: UserLine,
    ) -> None:
        self.records = records
        self.options = options
        self.backend_name = backend_name
        # the records keep the graph, and its parameters, as long as the program does
        self.module = weakref.ref(module)
        self.place = place
        self.grad_mode = torch.is_grad_enabled()
        self.told: set[type[Exception]] = set()

    def __call__(
        self, function: Callable[..., Any], error: BaseException, *inputs: Any
    ) -> Callable[..., Any]:
        if not isinstance(error, Exception) or getattr(error, "is_a_finding", False):
            raise error
        compat.set_grad_enabled(self.grad_mode)  # the graph ended where it had switched it
        module = self.module()
        raised = [error] if module is None else disabled(errors_of)(module, inputs)
        compat.set_grad_enabled(self.grad_mode)
        if not any(_alike(error, other) for other in raised):
            self._tell(error, raised)
        run, records, name = disabled(function), self.records, self.place.function
        told = f"its graph raised {type(error).__name__}, and the program did not end by it"

        def again(*args: Any) -> Any:
            answer = run(*args)
            records.skip(name, told)
            return answer

        return disabled(again)

    def _tell(self, error: Exception, raised: Sequence[Exception]) -> None:
        """A failure of the backend: torch raises nothing of the kind."""
        first = type(error) not in self.told
        if first:
            self.told.add(type(error))
            self.records.faults.append(
                RecordedFault(self.place.function, self.place, error, CALL_OF_A_GRAPH)
            )
        if self.options.raise_internal_errors:
            raise error
        instead = ", ".join(sorted({type(other).__name__ for other in raised})) or "nothing"
        text = (
            f"backend {self.backend_name!r} failed in a call of what it had compiled: "
            f"{type(error).__name__}: {error}; torch raises {instead} there"
        )
        if self.options.nopython:
            raise BackendError(text) from error
        error.__traceback__ = None  # it leads to the program's frames, which are to end
        if first:
            warn(f"{text}; {self.place.function} runs eagerly where it does")


def _alike(one: Exception, other: Exception) -> bool:
    return isinstance(one, type(other)) or isinstance(other, type(one))
