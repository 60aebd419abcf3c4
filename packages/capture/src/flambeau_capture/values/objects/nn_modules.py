"""Instances of `nn.Module` as values.

In: modules of the program and new ones. Out: `ModuleValue`. Invariant: parameters and buffers found
through a module become attributes of the graph, guarded by identity and metadata; a module is
called the way `nn.Module.__call__` would, hooks included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break, RunsAsItIs
from flambeau_capture.source import (
    Called,
    ConstantSource,
    InstanceAttr,
    ModuleEntry,
    Source,
    answers_attributes,
)
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.sequences import Pending
from flambeau_capture.values.objects.attributes import (
    assume_entry,
    assume_special_methods,
    find_in_class,
    instance_dict,
)
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.registry import wrap_known, wraps_if
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

Table = Literal["_parameters", "_buffers", "_modules"]
TABLES: tuple[Table, ...] = ("_parameters", "_buffers", "_modules")


class ModuleValue(ObjectValue):
    """A module. `swapped` are tensors that functional_call has put before its own."""

    def __init__(self, python_class: type, **parts: Any) -> None:
        super().__init__(python_class, **parts)
        self.swapped: dict[str, Value] = {}
        self.pinned = False  # by a guard of its identity
        #: while its hooks and its forward run together: what they have put before its own
        self.gathered: list[tuple[ModuleValue, str, Value]] | None = None

    def wrap_attribute(self, tx: Tracer, name: str, found: Any) -> Value:
        if name not in TABLES or type(found) is not dict:
            return super().wrap_attribute(tx, name, found)
        known: Value | None = tx.heap.find(found)
        if known is not None:
            return known
        assert self.source is not None
        source = InstanceAttr(self.source, name, self.python_class)
        tx.guard(source, "DICT_KEYS", tuple(found), True)
        entries: list[tuple[Value, Value | Pending]] = [
            (Constant(key), Pending(value, self._entry(name, key)))  # type: ignore[arg-type]
            for key, value in found.items()
        ]
        made = DictValue(entries, dict, source, tx)
        tx.heap.know(found, made)
        return made

    def table_entry(self, tx: Tracer, name: str) -> Value | None:
        """A parameter, buffer or submodule of that name."""
        if name in self.swapped:
            return self.swapped[name]
        table = self._table_of(tx, name)
        if table is None:
            return None
        own = self._own_table(table)
        if own is not None:
            return own.lookup(tx, Constant(name))
        return tx.wrap(instance_dict(self.real)[table][name], self._entry(table, name))

    def _entry(self, table: Table, name: str) -> ModuleEntry:
        assert self.source is not None
        return ModuleEntry(self.source, table, name, self.python_class)

    def assume_own(self, tx: Tracer, name: str) -> None:
        super().assume_own(tx, name)
        table = self._table_of(tx, name)
        if table is not None and self._own_table(table) is None:
            tx.guard(self._entry(table, name), "EXISTS")

    def _own_table(self, table: str) -> DictValue | None:
        """A table that the program has read or replaced."""
        own = self.written.get(table, self._read.get(table))
        return own if isinstance(own, DictValue) else None

    def instance_get(self, tx: Tracer, name: str) -> Value | None:
        if self.swapped and name in ("_parameters", "_buffers"):
            raise Break("FB0005", f"{name} of a module in a functional_call")
        own = {name: None} if self.real is None else instance_dict(self.real)
        if name not in self.written and name not in own:
            # nn.Module keeps what is in a table out of the instance's own attributes
            if any(name in (own.get(table) or ()) for table in TABLES):
                tx.guard(self.source, "NOT_IN_INSTANCE_DICT", name)
                return None
        return super().instance_get(tx, name)

    def missing_attr(self, tx: Tracer, name: str) -> Value:
        hook = find_in_class(self.python_class, "__getattr__")
        if (hook is not None and hook[1] is not compat.MODULE_GETATTR) or self.answers:
            return super().missing_attr(tx, name)
        assume_entry(tx, self.python_class, name)
        return self.module_getattr(tx, name)

    @property
    def answers(self) -> bool:
        """Whether its class sees what torch's own methods read of it."""
        return answers_attributes(self.python_class)

    def module_getattr(self, tx: Tracer, name: str) -> Value:
        """nn.Module.__getattr__."""
        found = self.table_entry(tx, name)
        if found is not None:
            return found
        if self.source is not None and self.real is not None:
            for table in TABLES:
                entries = instance_dict(self.real).get(table)
                if isinstance(entries, dict) and name not in entries:  # or it was taken out since
                    tx.guard(InstanceAttr(self.source, table), "DICT_NOT_CONTAINS", name)
        self.lacks(tx, name)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        return _picked(tx, self, key) or super().get_item(tx, key)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        hook = find_in_class(self.python_class, "__setattr__")
        plain = hook is not None and hook[1] is compat.MODULE_SETATTR
        if not plain or not self.module_setattr(tx, name, value):
            super().set_attr(tx, name, value)

    def module_setattr(self, tx: Tracer, name: str, value: Value) -> bool:
        """nn.Module.__setattr__ of what goes into no table, nor leaves one; else its own code is
        interpreted."""
        if name in self.swapped:
            tx.heap.changed()
            self.swapped[name] = value
            return True
        if self.answers:
            return False
        special = isinstance(value, TensorValue) and _is_registered(tx, value)
        if self._table_of(tx, name) is None and not special and not isinstance(value, ModuleValue):
            self.generic_set_attr(tx, name, value)
            return True
        return False

    def _table_of(self, tx: Tracer, name: str) -> Table | None:
        real = {} if self.real is None else instance_dict(self.real)
        for table in TABLES:
            own = self._own_table(table)
            if name in (real.get(table) or ()) if own is None else own.contains(tx, Constant(name)):
                return table
        return None

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs] | None:
        _assume_calls(tx, self.python_class)
        if not compat.is_called_as_module(self.python_class):
            return super().forwards(tx, args, kwargs)
        return module_forwards(tx, self, args, kwargs)

    def hooked(self, tx: Tracer) -> bool:
        for table in compat.global_hook_tables():
            tx.guard(ConstantSource(table, "global hooks"), "LENGTH", len(table))
            now = tx.heap.find(table)  # the program has set some in this call, or looked at them
            if table if now is None else now.length(tx):
                return True
        for name in compat.HOOK_TABLES:
            if self.real is None:
                hooks = self.instance_get(tx, name)
                if hooks is not None and hooks.length(tx):
                    return True
                continue
            found = instance_dict(self.real).get(name)
            changed = self.written.get(name) or (found is not None and tx.heap.find(found))
            if found or (changed and changed.length(tx)):  # hooks may be set under capture
                return True
            assert self.source is not None
            tx.guard(InstanceAttr(self.source, name), "LENGTH", 0)
        return False


def _is_registered(tx: Tracer, value: TensorValue) -> bool:
    """Whether a tensor goes into a table of the module whose attribute it becomes."""
    if value.cls is not torch.Tensor or hasattr(value.real, "_is_buffer"):
        return True
    if value.real is not None and value.source is not None:
        tx.guard(value.source, "NOT_HASATTR", "_is_buffer")
    return False


def _assume_calls(tx: Tracer, python_class: type) -> None:
    """Assume what calling a module comes to; torch's own classes are patched as well."""
    for name in ("__call__", "_call_impl"):
        assume_entry(tx, python_class, name)


def _assume_initialized(tx: Tracer, module: Value) -> None:
    """The call that makes a lazy module's parameters is Python's, with all that is around it."""
    if not issubclass(module.cls, _Lazy) or not isinstance(module, ModuleValue):
        return
    real, source = module.real, module.source
    if real is None or source is None or not is_lazy(real):
        return
    tx.guard(source, "CALL", is_lazy, "has no parameters yet")
    raise RunsAsItIs(f"the call that makes the parameters of {module.describe()}")


_Lazy: type = torch.nn.modules.lazy.LazyModuleMixin


def is_lazy(module: Any) -> bool:
    """Whether the parameters of a lazy module are still to be made."""
    return hasattr(module, "_initialize_hook")


def module_forwards(
    tx: Tracer, module: Value, args: Args, kwargs: Kwargs
) -> tuple[Value, Args, Kwargs]:
    """The call that nn.Module.__call__ comes to."""
    _assume_calls(tx, module.cls)
    _assume_initialized(tx, module)
    if isinstance(module, ModuleValue) and is_disabled(module.real):
        raise Break("FB0006", f"call of {module.describe()}, which is disabled")
    impl = compat.MODULE_CALLS[-1]
    if not isinstance(module, ModuleValue):
        return wrap_known(tx, impl, "_call_impl"), [module, *args], kwargs
    if module.python_class._call_impl is not impl:  # type: ignore[attr-defined]
        return tx.get_attr(module, "_call_impl"), args, kwargs
    if module.hooked(tx):
        together = module.real is not None and compat.sharding_of(module.real) is not None
        called = call_together if together else impl
        return wrap_known(tx, called, "_call_impl"), [module, *args], kwargs
    return tx.get_attr(module, "forward"), args, kwargs


def call_together(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
    """A call of a module whose hooks change it for its forward: a graph has both, or neither."""
    return module(*args, **kwargs)


def call_module(tx: Tracer, module: Value, args: Args, kwargs: Kwargs) -> Value:
    """nn.Module.__call__."""
    fn, args, kwargs = module_forwards(tx, module, args, kwargs)
    return tx.call(fn, args, kwargs)


def original_of(obj: torch.nn.Module) -> torch.nn.Module:
    """The module whose twin this is, compiled or disabled, or itself."""
    twin = "__flambeau_original__" in type(obj).__dict__
    return object.__getattribute__(obj, "__flambeau_original__") if twin else obj


def is_disabled(obj: Any) -> bool:
    """Whether this is what `disable` made of a module."""
    found = type(obj).__dict__.get("__flambeau_compiler__")
    return found is not None and object.__getattribute__(obj, "__flambeau_compiler__") is None


@wraps_if(lambda obj: issubclass(type(obj), torch.nn.Module), 40)
def wrap_nn_module(tx: Tracer, obj: torch.nn.Module, source: Source) -> Value:
    replaced = not isinstance(source, ConstantSource) and tx.replaced(source, obj)
    if not replaced:  # of a block that is repeated, the class and what is read from it are guarded
        tx.guard(source, "ID_MATCH", obj)
    tx.guard(source, "TYPE_MATCH", type(obj))
    original = original_of(obj)
    assume_special_methods(tx, type(original))
    known: Value | None = tx.heap.find(original)
    if known is not None and is_disabled(obj) and not is_disabled(getattr(known, "real", None)):
        raise Break("FB0006", "a module and what flambeau.disable made of it, side by side")
    if known is None:
        real = obj if is_disabled(obj) else original
        made = known = ModuleValue(type(original), real=real, source=source)
        made.pinned = not replaced
        tx.heap.know(original, known)
    elif replaced and known.source is not None and known.source != source:
        tx.guard_alias(source, known.source)
    if original is not obj:
        tx.heap.know(obj, known)
    return known


_LISTS = (torch.nn.ModuleList, torch.nn.Sequential)


@dataclass(frozen=True, eq=False)
class _Picked:
    """`modules[index]`, for an index that counts from the front."""

    modules: Any

    @property
    def __name__(self) -> str:
        return f"{type(self.modules).__name__}.__getitem__"

    def __call__(self, index: int) -> Any:
        if type(index) is not int:
            raise TypeError(index)
        return self.modules._modules[str(index)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Picked) and other.modules is self.modules

    def __hash__(self) -> int:
        return hash((_Picked, id(self.modules)))


def _picked(tx: Tracer, modules: Any, key: Value) -> Value | None:
    """`modules[key]` with the key left open; None where it has to be known."""
    if not isinstance(key, SymbolValue) or key.source is None or key.cls is not int:
        return None
    found = find_in_class(modules.python_class, "__getitem__")
    if not modules.pinned or found is None or found[0] not in _LISTS:
        return None
    table = tx.heap.find(modules.real._modules)
    if "_modules" in modules.written or any(one is table for one in tx.heap.effects()):
        return None
    one = modules.real._modules.get(str(tx.shapes.present(key.number)))
    if one is None:
        return None
    assume_entry(tx, modules.python_class, "__getitem__")
    source = Called(key.source, _Picked(modules.real))
    tx.replaced(source, modules)  # the index varies, and so does what it picks
    return tx.wrap(one, source)
