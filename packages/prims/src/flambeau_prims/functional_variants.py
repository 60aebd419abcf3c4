"""Functional forms of in-place and `out=` overloads.

In: an ATen overload that writes to arguments, and a table of decompositions. Out: the overload
that computes the same without writing, and a function that computes it and then writes.
Invariant: the pair is found by the schemas alone: the same arguments but for the outputs, and one
result for each argument that is written.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_prims._op import PRIMS
from flambeau_prims._torch_compat import (
    OpOverload,
    argument_names,
    is_mutable,
    is_view_op,
    parameters,
    result_count,
)
from flambeau_prims.decomposition_table import Decomposition

_NAMESPACE = "aten::"

# What a factory is given and its `out=` form reads from the tensor it writes to.
_OF_THE_OUTPUT = frozenset({"dtype", "layout", "device", "pin_memory", "memory_format"})


@dataclass(frozen=True)
class Variant:
    """`op` writes what `functional` returns: its last results, to the arguments named `written`.

    `implied` are arguments of `functional` that follow from the output.
    """

    op: OpOverload
    functional: OpOverload
    written: tuple[str, ...]
    implied: tuple[str, ...]


def _candidates(name: str) -> Iterator[OpOverload]:
    bare = name.removeprefix(_NAMESPACE)
    names = [bare]
    if bare.startswith("__i"):  # __iadd__ and its like
        names.append(f"__{bare[3:]}")
    elif bare.endswith("_") and not bare.endswith("__"):
        names += [bare[:-1], f"{bare[:-1]}_functional"]
    else:
        names.append(f"{bare}_functional")
    for each in names:
        packet = getattr(torch.ops.aten, each, None)
        for overload in packet.overloads() if packet is not None else ():
            yield getattr(packet, overload)


@functools.cache
def functional_form(op: OpOverload) -> Variant | None:
    """The overload that `op` is the writing form of; None if it writes nothing or has none."""
    if not is_mutable(op):
        return None
    known = parameters(op)
    wanted = [(p.name, p.type) for p in known if not p.is_output]
    has_output = len(wanted) < len(known)
    written = tuple(p.name for p in known if p.is_written)
    found = []
    for other in _candidates(str(op.name()).partition(".")[0]):
        if is_mutable(other):
            continue
        have = [(p.name, p.type) for p in parameters(other)]
        extra = [item for item in have if item not in wanted]
        implied = tuple(name for name, _ in extra)
        follows = has_output and _OF_THE_OUTPUT.issuperset(implied)
        same = sorted(item for item in have if item not in extra) == sorted(wanted)
        if same and (follows or not extra):
            found.append(Variant(op, other, written, implied))
    # an `out` form extends the name of the overload it belongs to
    found.sort(key=lambda variant: not _extends(_label(op), _label(variant.functional)))
    return found[0] if found else None


def _label(op: OpOverload) -> str:
    return str(op.name()).partition(".")[2]


def _extends(label: str, base: str) -> bool:
    return label in ({base, f"{base}_out"} if base else {"", "out"})


def writing(op: OpOverload, table: Mapping[OpOverload, Decomposition]) -> Decomposition | None:
    """A decomposition of an overload that writes, if `table` has one of its functional form.

    The function computes the functional form, resizes an `out=` argument of another shape as
    eager does, writes by `copy_`, and returns the arguments it wrote to.
    """
    variant = functional_form(op)
    if variant is None or is_view_op(variant.functional):
        return None  # `transpose_` writes no element
    function = table.get(variant.functional)
    if function is None:
        return None
    names, _ = argument_names(op)
    wanted, by_name = argument_names(variant.functional)

    def write(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        targets = [given[name] for name in variant.written]
        for name in variant.implied:
            if name in ("dtype", "device"):
                given[name] = getattr(targets[0], name)
        result = _call(function, given, wanted, by_name)
        if result is NotImplemented:
            return NotImplemented
        parts = list(result) if isinstance(result, (list, tuple)) else [result]
        if len(targets) == 1 and isinstance(targets[0], (list, tuple)):
            parts = [parts]  # a list of tensors is one argument and one result
        kept = parts[: len(parts) - len(targets)]
        for target, value in zip(targets, parts[len(kept) :], strict=True):
            _write(target, value)
        results = (*kept, *targets)[: result_count(op)]
        if not results:
            return None
        return results if len(results) > 1 else results[0]

    return write


def _call(
    function: Decomposition,
    given: Mapping[str, Any],
    names: tuple[str, ...],
    by_name: frozenset[str],
) -> Any:
    """`function` called with positional arguments by position as far as they were given."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for place, name in enumerate(names):
        if name not in given:
            continue
        if name in by_name or place != len(positional):
            keywords[name] = given[name]
        else:
            positional.append(given[name])
    return function(*positional, **keywords)


def _write(target: Any, value: Any) -> None:
    if target is None or value is None:
        return
    if isinstance(target, (list, tuple)):
        for each, part in zip(target, value, strict=True):
            _write(each, part)
        return
    if tuple(target.shape) != tuple(value.shape):
        target.resize_(value.shape)
    cast, copy = PRIMS["cast"].overload, PRIMS["copy_"].overload
    copy(target, value if value.dtype == target.dtype else cast(value, dtype=target.dtype))
