"""`torch.func.functional_call`: a module with other parameters and buffers.

In: a module's value, dicts of tensors, arguments. Out: what the call answers. Invariant: while the
call is interpreted, the modules answer the given tensors for those names; afterwards their own, and
the dict holds what the module has put in their place.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant, constant_of, is_none
from flambeau_capture.values.containers.dicts import DictValue, pairs_of
from flambeau_capture.values.containers.sequences import SequenceValue
from flambeau_capture.values.functions.callables import handles
from flambeau_capture.values.objects.nn_modules import ModuleValue

Named = tuple[str, ModuleValue, str, Value]


@handles(torch.func.functional_call)
def _functional_call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`functional_call(module, dicts, args=None, kwargs=None, *, tie_weights, strict)`."""
    names = ("module", "parameter_and_buffer_dicts", "args", "kwargs")
    given: dict[str, Value] = dict(zip(names, args)) | dict(kwargs)
    module, tables = given["module"], _tables(given["parameter_and_buffer_dicts"])
    if not isinstance(module, ModuleValue):
        raise Break("FB0005", f"functional_call of {module.describe()}")
    if "strict" in given and given["strict"].truth(tx):
        raise Break("FB0005", "functional_call with strict=True")
    tied = given["tie_weights"].truth(tx) if "tie_weights" in given else True
    chosen = {constant_of(key): value for table in tables for key, value in table.entries()}
    if len(chosen) != sum(table.length(tx) for table in tables):
        raise Break("FB0005", "functional_call with a name in two dicts")
    swaps = _swaps(tx, module, chosen, tied)
    positional, named = _arguments(tx, given)
    try:
        for owner, name, value in swaps.values():
            owner.swapped[name] = value
        result = tx.call(module, positional, named)
        for table in tables:
            for key, value in table.entries():
                owner, name, _ = swaps[constant_of(key)]
                if owner.swapped[name] is not value:
                    table.store(tx, key, owner.swapped[name])
        return result
    finally:
        for owner, name, _ in swaps.values():
            owner.swapped.pop(name, None)


def _tables(value: Value) -> list[DictValue]:
    found = value.parts() if isinstance(value, SequenceValue) else [value]
    tables = [table for table in found if isinstance(table, DictValue)]
    if len(tables) != len(found):
        raise Break("FB0005", f"functional_call with {value.describe()}")
    return tables


def _arguments(tx: Tracer, given: dict[str, Value]) -> tuple[list[Value], dict[str, Value]]:
    positional = given.get("args", Constant(None))
    named = given.get("kwargs", Constant(None))
    if is_none(positional):
        listed = []
    else:
        listed = unpack(tx, positional) if positional.cls is tuple else [positional]
    if is_none(named):
        return listed, {}
    return listed, {constant_of(key): value for key, value in pairs_of(tx, named)}


def _swaps(
    tx: Tracer, module: ModuleValue, chosen: dict[str, Value], tied: bool
) -> dict[str, tuple[ModuleValue, str, Value]]:
    """Which module answers which value for which name, by the name's path."""
    everything = list(_named(tx, module, ""))
    own = {path: (owner, name, value) for path, owner, name, value in everything}
    swaps: dict[str, tuple[ModuleValue, str, Value]] = {}
    for path, value in chosen.items():
        if path not in own:
            raise Break("FB0005", f"functional_call with {path!r}, which the module has not")
        same = [p for p, _, _, v in everything if v is own[path][2]] if tied else [path]
        for alias in same:
            if alias in chosen and chosen[alias] is not value:
                raise Break("FB0005", "functional_call with two values for a tied tensor")
            swaps[alias] = (*own[alias][:2], value)
    return swaps


def _named(tx: Tracer, module: ModuleValue, prefix: str) -> Iterator[Named]:
    """Every parameter and buffer, by path, owner and name; that they are these is guarded."""
    for table in ("_parameters", "_buffers", "_modules"):
        entries = module.instance_get(tx, table)
        if not isinstance(entries, DictValue):
            raise Break("FB0005", f"functional_call of {module.describe()}")
        for key, value in entries.entries():
            name = constant_of(key)
            if isinstance(value, ModuleValue):
                yield from _named(tx, value, f"{prefix}{name}.")
            elif not is_none(value):
                real = getattr(value, "real", None)
                if real is not None:
                    tx.guard(value.source, "ID_MATCH", real)
                yield f"{prefix}{name}", module, name, value
