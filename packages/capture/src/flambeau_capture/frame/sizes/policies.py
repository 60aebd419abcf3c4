"""Size policies: what the program says of the sizes of its arguments, once, where it is compiled.

In: `sizes=`, by parameter, part and dimension, and the function. Out: for a place of the function's
frame, the policy of each dimension. Invariant: what names no parameter, or no policy, is an error
before anything is captured; a policy never changes an answer, but for `pad`, which is a promise.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from flambeau_capture.errors import SizePolicyError
from flambeau_capture.frame.sizes.marks import ANY, Bounds
from flambeau_capture.source import Item, Local, Source

OPEN, FIXED = "open", "fixed"


@dataclass(frozen=True)
class Bucket:
    """One graph for the sizes between two powers of two, the larger one included: at most as many
    graphs as the largest size has bits, each with kernels for its range.

    pad: what fills an argument up to the larger one, so that the graph's size is a constant. It
    promises that the function's results, cut back to the size of the call, are the same then; the
    first calls are compared where `verify` is given. None: nothing is padded.
    """

    pad: float | None = None

    def __post_init__(self) -> None:
        _check_pad(self.pad, self)

    def bounds(self, size: int) -> tuple[int, int]:
        """The smallest and the largest size of the bucket that a size, of 2 or more, is in."""
        most = 1 << (size - 1).bit_length()
        return most // 2 + 1, most


@dataclass(frozen=True)
class PadTo:
    """One graph for the sizes up to a multiple of `multiple`, of that size: arguments are filled up
    to the next one with `pad`, which promises what it does in a `Bucket`."""

    multiple: int
    pad: float

    def __post_init__(self) -> None:
        if type(self.multiple) is not int or self.multiple < 2:
            raise SizePolicyError(f"{self!r}: a multiple is an integer of 2 or more")
        if self.pad is None:
            raise SizePolicyError(f"{self!r}: pad is the number that fills an argument")
        _check_pad(self.pad, self)

    def bounds(self, size: int) -> tuple[int, int]:
        """The smallest and the largest size that are padded to the same multiple as a size is."""
        most = -(-size // self.multiple) * self.multiple
        return max(most - self.multiple + 1, 2), most


def _check_pad(pad: object, policy: object) -> None:
    if pad is not None and not isinstance(pad, int | float):
        raise SizePolicyError(f"{policy!r}: pad is a number, not a {type(pad).__name__}")


Policy = Bucket | PadTo | str
#: a parameter, and the keys of the containers below it
Place = tuple[Any, ...]


@dataclass(frozen=True)
class SizePolicies:
    """The policies of one function, by place and dimension."""

    code: CodeType
    by_place: Mapping[Place, Mapping[int, Policy]]

    @property
    def buckets(self) -> bool:
        """Whether there is a graph for each of several ranges."""
        return any(not isinstance(p, str) for own in self.by_place.values() for p in own.values())

    def of(self, code: CodeType, source: Source, rank: int) -> dict[int, Policy]:
        """The policies of a tensor's dimensions. Raises SizePolicyError for one it has not."""
        place = _place_of(source) if code is self.code else None
        given = self.by_place.get(place, {}) if place is not None else {}
        for dim in given:
            if not -rank <= dim < rank:
                raise SizePolicyError(
                    f"sizes has dimension {dim} of {_said(place or ())}, "
                    f"which is a tensor of {rank} dimensions"
                )
        return {dim % rank: policy for dim, policy in given.items()}


def opened(policies: Mapping[int, Policy], sizes: tuple[int, ...]) -> dict[int, Bounds]:
    """The dimensions that are left open, with their bounds: sizes of 0 and 1 are in no bucket."""
    found: dict[int, Bounds] = {}
    for dim, policy in policies.items():
        if policy == OPEN:
            found[dim] = ANY
        elif not isinstance(policy, str) and sizes[dim] > 1:
            found[dim] = policy.bounds(sizes[dim])
    return found


Padding = dict[int, tuple[int, int | float]]
"""By dimension, the size that an argument is padded to, and what with."""


def padding(policies: Mapping[int, Policy], sizes: tuple[int, ...]) -> Padding:
    """The dimensions that are padded: to what size, and with what."""
    return {
        dim: (policy.bounds(sizes[dim])[1], policy.pad)
        for dim, policy in policies.items()
        if not isinstance(policy, str) and policy.pad is not None and sizes[dim] > 1
    }


def _place_of(source: Source) -> Place | None:
    """A parameter and keys; None: it is reached in another way."""
    first, *rest = source.path()
    if not isinstance(first, Local) or not all(isinstance(step, Item) for step in rest):
        return None
    return (first.variable, *(step.key for step in rest if isinstance(step, Item)))


def _said(place: Place) -> str:
    return str(place[0]) + "".join(f"[{key!r}]" for key in place[1:])


def size_policies(sizes: object, target: Any, code: CodeType | None) -> SizePolicies | None:
    """What `sizes` says of a function's arguments. code: of the frame that it is called in.

    Raises SizePolicyError where it says nothing that can be."""
    if sizes is None:
        return None
    if not isinstance(sizes, Mapping):
        raise SizePolicyError(
            f"sizes is a {type(sizes).__name__}: give a dict by the names of the parameters, "
            f"like {{'x': {{0: 'open'}}}}"
        )
    name = getattr(target, "__qualname__", type(target).__qualname__)
    if code is None:
        raise SizePolicyError(f"sizes: {name} has no parameters of its own to name")
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    known = code.co_varnames[:count]
    for parameter in sizes:
        if parameter not in known:
            raise SizePolicyError(
                f"sizes names {parameter!r}, which is no parameter of {name}: "
                f"there are {', '.join(map(repr, known)) or 'none'}"
            )
    found = dict(one for key, given in sizes.items() for one in _tensors((key,), given))
    return SizePolicies(code, found)


def _tensors(place: Place, given: object) -> Iterator[tuple[Place, Mapping[int, Policy]]]:
    """The tensors that an entry names: their dimensions are integers with a policy."""
    if isinstance(given, list | tuple):
        given = {key: part for key, part in enumerate(given) if part is not None}
        parts: Any = given
    elif isinstance(given, Mapping):
        parts = given
        own = {dim: each for dim, each in given.items() if not _is_container(each)}
        if own:
            for dim, each in given.items():
                _check(place, dim, each)
            yield place, dict(own)  # type: ignore[arg-type]
            return
    else:
        raise SizePolicyError(
            f"sizes has {given!r} for {_said(place)}: give a dict by dimension, like {{0: 'open'}}"
        )
    for key, part in parts.items():
        yield from _tensors((*place, key), part)


def _is_container(given: object) -> bool:
    return isinstance(given, Mapping | list | tuple)


def _check(place: Place, dim: object, given: object) -> None:
    if type(dim) is not int:
        raise SizePolicyError(
            f"sizes has {dim!r} for a dimension of {_said(place)}: it is a number"
        )
    if not isinstance(given, Bucket | PadTo) and given not in (OPEN, FIXED):
        raise SizePolicyError(
            f"sizes has {given!r} for dimension {dim} of {_said(place)}: "
            f"give 'open', 'fixed', a Bucket or a PadTo"
        )
