"""Registry of sample calls, by the primitive that they are of.

In: functions decorated with `@samples(name, ...)`. Out: `SAMPLERS`; a `Case`, one call, whose eager
result a backend's result can be compared with. Invariant: what is derived for a backward primitive
is accepted by its shape rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from flambeau_prims._op import PRIMS, Prim, PrimError
from flambeau_prims._torch_compat import parameters, result_names
from flambeau_prims.conformance.samples.tensors import moved, signed
from flambeau_prims.graph_recorder import flatten

Call = tuple[tuple[Any, ...], dict[str, Any]]
Sampler = Callable[[Generator], Iterable[Call]]
S = TypeVar("S", bound=Callable[..., Iterable[Call]])

SAMPLERS: dict[str, list[Sampler]] = {}
"""What `samples` has registered, by the name of the primitive."""


@dataclass(frozen=True)
class Case:
    """One call: `prim.overload(*args, **kwargs)`. `special`: values are NaN, infinities, ends."""

    prim: Prim
    label: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    special: bool = False

    def run(self) -> Any:
        """The eager result."""
        return self.prim.overload(*self.args, **self.kwargs)

    def on(self, device: torch.device) -> Case:
        """The same call on another device."""
        args, kwargs = moved(self.args, device), moved(self.kwargs, device)
        return replace(self, args=tuple(args), kwargs=kwargs)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments, in order."""
        return [x for x in flatten((self.args, self.kwargs)) if isinstance(x, Tensor)]

    @property
    def dtype(self) -> torch.dtype | None:
        """What the case is filed under: the first inexact dtype among operands, else the first,
        else the `dtype` argument; None if nothing says one."""
        dtypes = [t.dtype for t in self.tensors]
        inexact = [d for d in dtypes if d.is_floating_point or d.is_complex]
        asked = self.kwargs.get("dtype")
        return next(iter([*inexact, *([asked] if asked else []), *dtypes]), None)

    @property
    def dtypes(self) -> frozenset[torch.dtype]:
        """All dtypes that a backend must know to run the case."""
        asked = self.kwargs.get("dtype")
        return frozenset(t.dtype for t in self.tensors) | ({asked} if asked else frozenset())


def call(*args: Any, **kwargs: Any) -> Call:
    """The arguments of a sample call."""
    return args, kwargs


def samples(*names: str, of: Sequence[torch.dtype] = ()) -> Callable[[S], S]:
    """Register a function as a source of sample calls of the primitives `names`: of a generator, or
    of a generator and each dtype that is given by `of`."""

    def register(function: S) -> S:
        def of_each(g: Generator) -> Iterator[Call]:
            for dtype in of:
                yield from function(g, dtype)

        for name in names:
            SAMPLERS.setdefault(name, []).append(of_each if of else function)
        return function

    return register


def accepts(prim: Prim, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the shape rule takes the call."""
    try:
        prim.predicted(args, kwargs)
    except PrimError as error:
        if error.__cause__ is not None:  # it tripped; a refusal would be the rule's own
            raise
        return False
    return True


Fill = Callable[[Mapping[str, Any]], Any]


def gradients(name: str, forward: str = "", **fills: Fill) -> None:
    """Register sample calls of a backward primitive, by those of its forward: its arguments are the
    forward's and its results of these names, a gradient of the first result, and what `fills` make
    of all these, where its rule accepts that; a result without a name has its number for one."""
    source = PRIMS[forward or name.removesuffix("_backward")]
    wanted = parameters(PRIMS[name].overload)

    def calls(g: Generator) -> Iterator[Call]:
        for args, kwargs in (c for sampler in SAMPLERS[source.name] for c in sampler(g)):
            found = source.overload(*args, **kwargs)
            results = found if isinstance(found, tuple) else (found,)
            given = dict(zip((p.name for p in parameters(source.overload)), args, strict=False))
            given |= {**kwargs, **dict(zip(result_names(source.overload), results, strict=True))}
            given["grad"] = signed(tuple(results[0].shape), results[0].dtype, g)
            given |= {key: fill(given) for key, fill in fills.items()}
            own = tuple(given[p.name] for p in wanted if not p.keyword_only)
            named = {p.name: given[p.name] for p in wanted if p.keyword_only and p.name in given}
            if accepts(PRIMS[name], own, named):
                yield own, named

    SAMPLERS.setdefault(name, []).append(calls)
