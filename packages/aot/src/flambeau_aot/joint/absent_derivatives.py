"""Derivatives that there are none of, and the zeros that represent them.

In: operators of a backward pass, while they are recorded. Out: whether a result is such a
derivative; a sum with one.
Invariant: eager computes nothing of a derivative that is none, and adds nothing for it: zero times
an infinite factor is zero here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import is_view_op
from flambeau_aot.joint.reach import computed_from

_aten = torch.ops.aten
_PRODUCTS = frozenset((_aten.mul.Tensor, _aten.mul.Scalar, _aten.dot.default, _aten.vdot.default))
_QUOTIENTS = frozenset((_aten.div.Tensor, _aten.div.Scalar))
_SUMS = frozenset((_aten.add.Tensor, _aten.sub.Tensor))

LED_TO = "led to by derivatives that are none"
"""Metadata key of a node: the inputs, by name, that its history leads to though no value does."""


def keep_history(nodes: Sequence[fx.Node], operands: Sequence[fx.Node]) -> None:
    """Note for these nodes what the history of operands leads to that none is computed from."""
    found = frozenset[str]().union(*map(led_to, computed_from(operands)))
    for node in nodes if found else ():
        node.meta[LED_TO] = node.meta.get(LED_TO, frozenset()) | found


def led_to(node: fx.Node) -> frozenset[str]:
    """The inputs that the history of a value leads to by way of this node."""
    own: frozenset[str] = node.meta.get(LED_TO, frozenset())
    return own | {node.name} if node.op == "placeholder" else own


Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
"""Records an operator."""


class AbsentDerivatives:
    """The zeros of one trace."""

    def __init__(self) -> None:
        self._zeros: dict[int, torch.Tensor] = {}

    def note(self, zeros: torch.Tensor) -> None:
        """This value represents a derivative that there is none of."""
        self._zeros[id(zeros)] = zeros

    def is_one(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Whether an operator gives a derivative that is none: a view of one, a product with one,
        which is zero whatever the other factor is, an infinity too, what one is divided by that is
        none itself, the sum of two."""
        none = self._among(args)
        if not any(none):
            return False
        if func in _QUOTIENTS:
            return none == [True, False]
        if func in _SUMS:
            return all(none)
        return any(none) if func in _PRODUCTS else is_view_op(func) and none[0]

    def in_sum(self, func: Any, args: tuple[Any, ...]) -> list[bool]:
        """Which of the operands of a sum are derivatives that are none."""
        return self._among(args) if func in _SUMS else []

    def _among(self, args: tuple[Any, ...]) -> list[bool]:
        if not self._zeros:
            return []
        return [self._zeros.get(id(item), self) is item for item in args[:2]]

    def added(
        self,
        run: Run,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        first_is_none: bool,
    ) -> Any:
        """A sum with one derivative that is none: the other operand, or a multiple of it, in the
        dtype and size of both. (`0 - x` is not `-x` at 0, and masks have no difference.) `run`
        records what it takes."""
        x = args[1] if first_is_none else args[0]
        if not all(isinstance(item, torch.Tensor) for item in args[:2]):
            return run(func, args, kwargs)
        alpha = kwargs.get("alpha", 1) * (-1 if func is _aten.sub.Tensor else 1)
        shape = torch.broadcast_shapes(*(item.shape for item in args[:2]))
        x = run(_aten.expand.default, (x, list(shape)), {})
        dtype = torch.result_type(*args[:2])
        x = run(_aten._to_copy.default, (x,), {"dtype": dtype})
        if not first_is_none or alpha == 1:
            return x
        return run(_aten.mul.Tensor, (x, alpha), {})
