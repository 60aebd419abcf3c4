"""What becomes of a call whose graph raises: the frame runs as it is.

In: a finished graph; the error that it raised. Out: whether nothing of it is left when it raises;
the function that runs in its place. Invariant: the program raises, and handles, what it does
without capture, after the effects that come before: a graph that writes to what it was given, draws
random numbers, or calls what is not torch's is not run again. An error with a true attribute
`is_a_finding` is what a backend has found out, and reaches the program.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture._native import disabled
from flambeau_capture.records import Records
from flambeau_capture.values.graph_calls import operator_name, version_of

_DRAWS = re.compile(
    "rand|rrelu|drop|normal|bernoulli|multinomial|uniform|cauchy|exponential|geometric|poisson|gumbel|"
    "fractional|attention|rnn|lstm|gru|seed"
)
_DRIVES = re.compile("backward|autograd|distributed|checkpoint|autocast|vmap|functorch|hook")
_NAMESPACES = ("aten", "prims", "flambeau_capture")


def leaves_nothing(graph: fx.Graph) -> bool:
    """Whether a call of the graph that raises has changed nothing that outlives it."""
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            given = node.meta.get("val")
            if isinstance(given, torch.Tensor) and version_of(given) != 0:
                return False
        elif node.op == "call_module" or (node.op != "output" and not _is_pure(node.target)):
            return False
    return True


def _is_pure(target: Any) -> bool:
    """Whether a call does nothing but compute, and write to what the graph has made."""
    name = operator_name(target)
    if _DRAWS.search(name) or _DRIVES.search(name):
        return False
    if isinstance(target, str):
        return not name.startswith("set_")
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        namespace = str(getattr(target, "_qualified_op_name", target)).partition(".")[0]
        return namespace.partition("::")[0] in _NAMESPACES
    if target is compat.set_grad_enabled:
        return True
    module = getattr(target, "__module__", None) or type(target).__module__
    return module.partition(".")[0] in ("torch", "_operator", "math", "builtins") and not (
        _DRIVES.search(module)
    )


class AsItIs:
    """Makes of a frame's function one that runs uncaptured, after its graph has raised."""

    def __init__(self, records: Records, function: str, grad_mode: bool) -> None:
        self.records = records
        self.function = function
        self.grad_mode = grad_mode

    def __call__(self, function: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
        if not isinstance(error, Exception) or getattr(error, "is_a_finding", False):
            raise error
        compat.set_grad_enabled(self.grad_mode)  # the graph ended where it had switched it
        run, records, name = disabled(function), self.records, self.function
        told = f"its graph raised {type(error).__name__}, and the program did not end by it"

        def again(*args: Any) -> Any:
            answer = run(*args)
            records.skip(name, told)
            return answer

        return disabled(again)
