"""Gradient hooks that a program registers on its inputs.

What comes in: a call of `register_hook` on the stand-in of an input. What goes out: the hook, to be
put on the input itself at every call, as eager does; a refusal where it cannot be.
Invariant: such a hook is never traced: it sees the whole gradient of the input, of which the
program may give only a part, and runs when the engine does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

from flambeau_aot._torch_compat import FakeTensor, is_functional
from flambeau_aot.errors import Unsupported

Hook = Callable[[torch.Tensor], Any]

_DEPTH = 6


class Handle:
    """What stands for the handle of a hook while the program is traced."""

    def remove(self) -> None:
        """Refused: the hook is put on the input after the program has run."""
        raise Unsupported("the handle of a hook on an input; remove the hook outside the region")


class InputHooks:
    """The hooks of one trace, by stand-in, in order."""

    def __init__(self, histories: Mapping[int, Any]) -> None:
        """histories: by stand-in, the gradient function that it had before the program ran."""
        self.histories = histories
        self.found: list[tuple[int, Hook]] = []

    def put(self, target: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Handle:
        """Note a hook; raises where it is not the input's, or holds a value of the trace."""
        (hook,) = (*args[1:], *kwargs.values())
        if id(target) not in self.histories:
            raise Unsupported(
                "register_hook on an argument that shares memory with another one which is "
                "written to; put the hook on it outside the region"
            )
        if target.grad_fn is not self.histories[id(target)]:
            raise Unsupported(
                "register_hook on an input that was written to; put the hook on it before"
            )
        if _holds_traced(hook, _DEPTH, set()):
            raise Unsupported(
                "a hook on an input that reads a tensor of the program; put the hook on "
                "`x.view_as(x)`, and use that in place of the input"
            )
        self.found.append((id(target), hook))
        return Handle()


def _holds_traced(value: Any, depth: int, seen: set[int]) -> bool:
    """Whether a callable reaches, by what it closes over, a tensor that stands for another."""
    if isinstance(value, torch.Tensor):
        return isinstance(value, FakeTensor) or is_functional(value)
    if id(value) in seen or isinstance(value, (str, bytes, int, float, complex, type(None))):
        return False
    seen.add(id(value))
    parts = _parts(value)
    if parts and not depth:
        return True  # too deep to know
    return any(_holds_traced(part, depth - 1, seen) for part in parts)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, (MethodType, BuiltinFunctionType)):
        return [value.__self__]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, type) or type(value).__module__ == "builtins":
        return []
    parts = [getattr(value, name, None) for name in ("func", "args", "keywords")]
    return [*parts, *getattr(value, "__dict__", {}).values()]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None
