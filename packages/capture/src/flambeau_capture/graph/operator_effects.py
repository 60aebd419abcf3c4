"""Effects of operators, seen by torch's dispatcher.

In: the operators that run while the graph's operations are computed on fake tensors. Out: in
words, what a call of the graph leaves. Invariant: nothing is decided by a name: a draw is an
operator's tag, a write is in its schema, and what is not torch's own is not known.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from flambeau_capture.breaks import Break

#: operators of which torch's tags and schemas say all that there is to say
_OWN_NAMESPACES = frozenset({"aten", "prim", "prims", "flambeau_capture", "torchvision"})
#: operators that take a number which their dtype cannot hold: they compare with it, or widen first
_WIDE = frozenset(
    {
        "eq", "ne", "lt", "le", "gt", "ge", "pow", "pow_", "remainder", "fmod", "floor_divide",
        "arange", "range", "rsub",
    }
)  # fmt: skip
#: what a norm in training writes to, by names that all of them have: not every schema says so
_STATISTICS = frozenset({"running_mean", "running_var"})
_TRAINING = frozenset({"training", "train"})
#: in words: numbers of a generator are drawn
DRAWS = "draws random numbers"
#: arguments that say how much is drawn
_CHANCES = frozenset({"dropout_p", "dropout"})


class GraphEffects:
    """What has been seen of one graph."""

    def __init__(self) -> None:
        self.other: dict[str, None] = {}
        #: of these, calls of operators that are not torch's own
        self.of_libraries: set[str] = set()
        #: whether it enters or leaves a mode of torch
        self.switches = False
        #: memory by its address, kept so that it stays that one's
        self._written: dict[int, Any] = {}
        self._followed: list[set[int]] = []

    def see(
        self, operator: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """One operator runs, below autograd."""
        known = _known(operator)
        for place in known.scalars:
            _must_fit(operator, place.of(args, kwargs), args, kwargs)
        if known.unknown:
            told = f"calls {operator}, of which torch knows no effects"
            self.other[told] = None
            self.of_libraries.add(told)
        if known.draws and any(place.of(args, kwargs) != 0 for place in known.chances):
            self.other[DRAWS] = None
        for place in known.writes:
            self.see_write(place.of(args, kwargs))
        if any(place.of(args, kwargs) for place in known.training):
            for place in known.statistics:
                self.see_write(place.of(args, kwargs))

    def see_write(self, value: Any) -> None:
        """A tensor, or each of several, is written to."""
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided:
                storage = value.untyped_storage()
                self._written[storage._cdata] = storage
                for each in self._followed:
                    each.add(storage._cdata)
            else:
                self.other[_writes_in(value.layout)] = None
        elif isinstance(value, tuple | list):
            for item in value:
                self.see_write(item)

    @contextmanager
    def following(self) -> Iterator[set[int]]:
        """The addresses of the memory that is written to meanwhile."""
        found: set[int] = set()
        self._followed.append(found)
        try:
            yield found
        finally:
            self._followed.pop()

    def any(self) -> bool:
        """Whether there is anything."""
        return bool(self.other or self._written)

    def writes(self) -> bool:
        """Whether any memory was written to."""
        return bool(self._written)

    def writes_in(self, layout: torch.layout) -> bool:
        """Whether tensors of a layout without memory of its own are written to."""
        return _writes_in(layout) in self.other

    def writes_to(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Whether the memory of one of these was written to."""
        return any(
            t.layout is torch.strided and t.untyped_storage()._cdata in self._written
            for t in tensors
        )


class _Place(NamedTuple):
    """Where a call holds an argument."""

    position: int
    name: str
    default: Any

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.position < len(args):
            return args[self.position]
        return kwargs.get(self.name, self.default)


_CERTAIN = _Place(sys.maxsize, "", 1.0)


class _Known:
    """What tags and schema say of an operator."""

    def __init__(self, operator: torch._ops.OpOverload) -> None:
        arguments = operator._schema.arguments
        places = [_Place(n, one.name, one.default_value) for n, one in enumerate(arguments)]
        self.unknown = operator.namespace not in _OWN_NAMESPACES
        self.draws = torch.Tag.nondeterministic_seeded in operator.tags
        narrow = operator._schema.name.partition("::")[2] not in _WIDE
        self.chances = [place for place in places if place.name in _CHANCES] or [_CERTAIN]
        self.training = [place for place in places if place.name in _TRAINING]
        self.statistics = [place for place in places if place.name in _STATISTICS]
        both = list(zip(places, arguments, strict=True))
        numbers = [place for place, one in both if "number" in str(one.real_type).lower()]
        self.scalars = numbers if narrow else []
        self.writes = [
            p for p, one in both if one.alias_info is not None and one.alias_info.is_write
        ]


_known = functools.cache(_Known)


def _must_fit(
    operator: torch._ops.OpOverload, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """A graph break where a kernel would refuse a number, as its dtype cannot hold it: what is
    generated may make an infinity of it."""
    if type(value) is not float or not math.isfinite(value):
        return
    dtype = kwargs.get("dtype") or next(
        (arg.dtype for arg in args if isinstance(arg, torch.Tensor)), torch.get_default_dtype()
    )
    if dtype.is_floating_point and not torch.finfo(dtype).min <= value <= torch.finfo(dtype).max:
        raise Break("FB0011", f"{operator}: {value} is no {dtype}")


def _writes_in(layout: torch.layout) -> str:
    return f"writes to a {layout} tensor"
