"""Dispatch modes below autograd: which of them would see a call.

In: a function that is told of each. Out: a mode of torch's dispatcher. Invariant: nothing runs
another way for it; fake results are as kernels make them. Tried on torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from flambeau_capture._torch_compat.fakes import as_made

See = Callable[[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any]], None]


class Watching(TorchDispatchMode):
    """Tells of each operator before it runs."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:  # which would be loaded for it
        return False

    def __init__(self, see: See) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._see = see

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return func(*args, **given)
        self._see(func, args, given)
        return as_made(func, args, func(*args, **given))


class Following(Watching):
    """Tells of each operator, too, and keeps what is computed from given tensors."""

    def __init__(self, see: See, start: Iterable[torch.Tensor]) -> None:
        super().__init__(see)
        self._computed = {id(tensor): tensor for tensor in start}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if any(self.computed(given) for given in tree_leaves((args, kwargs))):
            self._computed.update((id(made), made) for made in tree_leaves(result))
        return result

    def computed(self, value: Any) -> bool:
        """Whether a value is one of the given tensors, or computed from one."""
        return self._computed.get(id(value), self) is value
