"""Classes that the frame makes, and what their class statements make of functions.

In: a name, bases and a namespace of values. Out: `MadeClass`, which looks attributes up in a class
of capture's own, the model. Invariant: the model has, under every name, what the program's class
would have, or a stand-in of a kind that Python treats the same (a function of the same code, an
instance of the same class); whatever is read of it is the value that the stand-in is for. Neither
it nor a part of it reaches the program: where the class leaves the frame, generated code makes it
anew of the values. Code of the program that runs as a class is made (metaclasses, `__set_name__`,
`__init_subclass__`) is interpreted, and not run again there.
"""

from __future__ import annotations

import abc
import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from flambeau_capture._native import set_metaclass
from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.values.base import (
    Args,
    Kwargs,
    NotConcrete,
    Tracer,
    Unreconstructible,
    UserError,
    Value,
)
from flambeau_capture.values.constant import LITERALS, Constant, constant_of, evaluate
from flambeau_capture.values.containers.dicts import DictValue, named_dict
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.builtin_functions import PartialValue
from flambeau_capture.values.functions.variables import CellValue
from flambeau_capture.values.objects.attributes import call_special, find_in_class
from flambeau_capture.values.objects.classes import ClassValue, names_slots
from flambeau_capture.values.objects.exceptions import new_exception
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.class_parts import model_of
from flambeau_capture.values.objects.super_objects import super_attribute
from flambeau_capture.values.registry import trusted_class

#: special methods that a class takes when it is made, without more
_SET_LATER = frozenset({
    "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__hash__", "__len__", "__call__",
    "__iter__", "__next__", "__contains__", "__getitem__", "__setitem__", "__delitem__",
    "__enter__", "__exit__", "__repr__", "__str__", "__bool__", "__add__", "__radd__", "__mul__",
    "__rmul__", "__sub__", "__rsub__", "__neg__", "__init__", "__format__", "__match_args__",
})  # fmt: skip


class PartOfClass(Value):
    """What Python, or the library, has made for a class: it is found there when it leaves."""

    cls: type

    def __init__(self, made: MadeClass, part: Any, find: Callable[..., Any], name: Any) -> None:
        self.made, self.part, self.find, self.name = made, part, find, name
        self.cls = type(part)

    def rebuild(self, writer: Any) -> None:
        writer.call(self.find, [self.made, Constant(self.name)])


class MadeClass(ClassValue):
    """A class that the frame has made. `steps`: what was done to it since, for generated code."""

    described = "class {0.python_class.__name__} made here"
    in_cells = True
    replaced = False

    def __init__(self, tx: Tracer, model: type, make: Any, given: Sequence[Value]) -> None:
        super().__init__(model)
        self.source = None  # type: ignore[assignment]
        self.make, self.given = make, given
        self.steps: list[tuple[Callable[..., Any], Sequence[Value]]] = []
        self._told = True  # whether the model has the words that the class has
        tx.heap.set_model(model, self)
        tx.heap.know(model, self)

    def as_python(self) -> Any:
        raise NotConcrete(self.describe())

    def _name(self, tx: Tracer, name: str) -> Value:
        if name == "__doc__" and not self._told:
            self.unknown(f"attribute {name!r}")
        return tx.wrap_new(getattr(self.python_class, name))

    def _subclasses(self, tx: Tracer) -> Value:
        self.unknown("method '__subclasses__'")

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "__dict__":
            self.unknown(f"attribute {name!r}")
        return super().get_attr(tx, name)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if self.special(tx, "__setattr__"):
            call_special(tx, self, "__setattr__", [Constant(name), value])
        else:  # as the library has it
            self._set(tx, name, value, type(self.python_class).__setattr__)

    def _set(self, tx: Tracer, name: str, value: Value, setter: Any = type.__setattr__) -> None:
        self._refuse(name, "set")
        tx.heap.changed()
        evaluate(tx, setter, self.python_class, name, model_of(tx, value, name))
        self.steps.append((setter, [Constant(name), value]))

    def del_attr(self, tx: Tracer, name: str) -> None:
        if self.special(tx, "__delattr__"):
            call_special(tx, self, "__delattr__", [Constant(name)])
        else:
            self._delete(tx, name, type(self.python_class).__delattr__)

    def _delete(self, tx: Tracer, name: str, deleter: Any = type.__delattr__) -> None:
        self._refuse(name, "deleted")
        tx.heap.changed()
        evaluate(tx, deleter, self.python_class, name)
        self.steps.append((deleter, [Constant(name)]))

    def keep_slot_names(self, tx: Tracer) -> None:
        if "__slotnames__" not in vars(self.python_class):
            tx.heap.changed()
            evaluate(tx, names_slots, self.python_class)
            self.steps.append((names_slots, []))

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__setattr__":  # as `type` has it
            self._set(tx, str(constant_of(args[0])), args[1])
            return Constant(None)
        if name == "__delattr__":
            self._delete(tx, str(constant_of(args[0])))
            return Constant(None)
        return super().call_method(tx, name, args, kwargs)

    def _refuse(self, name: str, done: str) -> None:
        """What instances are laid out by, or Python finds by itself, stays."""
        found = find_in_class(self.python_class, name)
        slot = found is not None and isinstance(found[1], types.MemberDescriptorType)
        laid_out = name.startswith("__") and name not in _SET_LATER
        if laid_out or slot:
            raise Break("FB0019", f"attribute {name!r} of {self.describe()} is {done}")

    def decorate(self, tx: Tracer, kwargs: Kwargs) -> MadeClass:
        """Let `dataclasses.dataclass` write methods for it, or make another class of slots."""
        model: Any = self.python_class
        try:
            plain = {name: value.as_python() for name, value in kwargs.items()}
            if plain.get("slots") and self._is_notified_of_making():
                raise NotConcrete("slots, for which another class is made")
            before, documented = set(map(id, vars(model).values())), model.__doc__ is not None
            self._refresh(tx)
            decorated: Any = dataclasses.dataclass(**plain)(model)
        except Exception as error:
            raise Break("FB0020", f"dataclass of {self.describe()}: {error}") from None
        tx.heap.changed()
        step = _decorate, [named_dict(dict(kwargs))]
        made = self
        if decorated is model:
            self.steps.append(step)
        else:
            steps = [TupleValue([Constant(fn), *args]) for fn, args in (*self.steps, step)]
            given = [Constant(self.make), TupleValue([*self.given]), TupleValue(steps)]
            made = MadeClass(tx, decorated, _make_in_steps, given)
            self.replaced = True
        for name, part in vars(decorated).items():
            if id(part) not in before and type(part) not in LITERALS:
                tx.heap.part(part, PartOfClass(made, part, in_class, name))
        for name, field in decorated.__dataclass_fields__.items():
            tx.heap.part(field, PartOfClass(made, field, _field, name))
            shown = field.default is dataclasses.MISSING or type(field.default) in LITERALS
            made._told &= documented or shown  # the library's words show defaults
        return made

    def _is_notified_of_making(self) -> bool:
        """Whether code of the program is, or holds the class itself."""
        model, notified = self.python_class, self.given[-2] if self.make is _make else None
        if not isinstance(notified, TupleValue) or notified.parts():
            return True
        if type(model) not in (type, abc.ABCMeta) or _hook(type, model.__bases__):
            return True
        functions = (part for part in vars(model).values() if isinstance(part, types.FunctionType))
        return any("__class__" in function.__code__.co_freevars for function in functions)

    def _refresh(self, tx: Tracer) -> None:
        """Annotations as they are by now: the library reads them."""
        model = vars(self.python_class).get("__annotations__")
        if model is not None:
            known = tx.heap.find_model(model)
            if not isinstance(known, DictValue):
                raise NotConcrete("annotations that were replaced")
            now = {key.as_python(): model_of(tx, value, "a type") for key, value in known.entries()}
            model.clear()
            model.update(now)

    def rebuild(self, writer: Any) -> None:
        if self.replaced:
            raise Unreconstructible(self, f"{self.describe()}, beside the one that has slots")
        with writer.building(self):
            writer.call(self.make, self.given)
        for fn, args in self.steps:
            writer.do_with_top(fn, args)

    reconstruct = Value.reconstruct


def in_class(kind: type, name: str) -> Any:
    return vars(kind)[name]


def _field(kind: Any, name: str) -> Any:
    return kind.__dataclass_fields__[name]


def _decorate(kind: type, given: Mapping[str, Any]) -> type:
    return dataclasses.dataclass(**given)(kind)


def _make_in_steps(make: Any, given: Sequence[Any], steps: Sequence[Any]) -> Any:
    """What is made of a class in the last of some steps."""
    made = make(*given)
    for fn, *args in steps:
        last = fn(made, *args)
    return last


def make_class(
    tx: Tracer, maker: Any, meta: ClassValue, name: Value, bases: Args, namespace: DictValue,
    kwargs: Kwargs,
) -> MadeClass:  # fmt: skip
    """`maker.__new__(meta, name, bases, namespace, **kwargs)`, of `type` or of `abc.ABCMeta`. What
    the program's code does as a class is made is interpreted; nothing runs it again."""
    entries = {str(key.as_python()): value for key, value in namespace.entries()}
    kinds = tuple(base_of(base) for base in bases)
    if "__subclasshook__" in entries:
        raise Break("FB0020", "the class has __subclasshook__")
    notified = [key for key, value in entries.items() if _is_notified(value)]
    try:
        model_space = {
            key: value.as_python() if key == "__slots__" else model_of(tx, value, key)
            for key, value in entries.items()
            if key not in ("__classcell__", "__classdictcell__")
        }
        title = name.as_python()
    except NotConcrete as error:
        raise Break("FB0020", f"{error}") from None
    kind: Any = meta.python_class
    hook = _hook(kind, kinds)
    model = evaluate(tx, _make, maker, kind, title, kinds, model_space, notified, hook is not None)
    hushed = [TupleValue(list(map(Constant, notified))), Constant(hook is not None)]
    given = [Constant(maker), meta, name, TupleValue(list(bases)), named_dict(entries), *hushed]
    made = MadeClass(tx, model, _make, given)
    for key, part in vars(model).items():
        if key not in model_space and type(part) not in LITERALS:
            tx.heap.part(part, PartOfClass(made, part, in_class, key))
    cell = entries.get("__classcell__")
    if isinstance(cell, CellValue):
        cell.write(tx, made)
    for key in notified:
        _notify(tx, made, entries[key], key)
    if hook is not None:
        tx.call(super_attribute(tx, made, made, "__init_subclass__"), [], kwargs)
    elif kwargs:
        _refuse_of_library(kinds)
        words = dict.fromkeys(kwargs)
        evaluate(tx, lambda: super(model, model).__init_subclass__(**words))
    return made


def _is_notified(value: Value) -> bool:
    """Whether code of the program is notified of the class that has a value, and its name there."""
    found = find_in_class(value.cls, "__set_name__") if isinstance(value, ObjectValue) else None
    return found is not None and not trusted_class(found[0])


def _notify(tx: Tracer, made: MadeClass, value: Value, name: str) -> None:
    """`value.__set_name__(made, name)`. Until 3.12 what it raises is the cause of another error."""
    try:
        call_special(tx, value, "__set_name__", [made, Constant(name)])
    except UserError as error:
        if VERSION >= (3, 12):
            raise Break("FB0020", f"__set_name__ of {value.describe()} raises") from None
        owner = made.python_class.__name__
        instance = f"'{value.cls.__name__}' instance {name!r}"
        words = f"Error calling __set_name__ on {instance} in '{owner}'"
        raised = new_exception(RuntimeError, [Constant(words)])
        raised.generic_set_attr(tx, "__cause__", error.value)
        raised.generic_set_attr(tx, "__context__", error.value)
        raise UserError(raised, error.step, again=True) from None


def _hook(meta: type, kinds: Sequence[type]) -> type | None:
    """The base whose code, the program's, is called for each class that derives from it."""
    owners = [one for kind in kinds for one in kind.__mro__ if "__init_subclass__" in vars(one)]
    own = [one for one in owners if not trusted_class(one)]
    if not own:
        return None
    if type(meta) is not type or find_in_class(meta, "mro") != (type, vars(type)["mro"]):
        raise Break("FB0020", f"class {own[0].__name__} has __init_subclass__ and such a metaclass")
    return own[0]


def _refuse_of_library(kinds: Sequence[type]) -> None:
    """A library's hook takes what `object` refuses."""
    known = next((find_in_class(kind, "__init_subclass__") for kind in kinds), None)
    if known is not None and known[0] is not object:
        raise Break("FB0020", f"class {known[0].__name__} takes names")


class _Deaf:
    """Stands before the bases of a class in the making: their hooks are not called."""

    __slots__ = ()

    def __init_subclass__(cls, **given: Any) -> None:
        pass


def _deafened(cls: Any) -> list[type]:
    return [cls, _Deaf, *type.mro(cls)[1:]]


def _make(
    maker: Any, meta: Any, name: str, bases: tuple[type, ...], namespace: dict[str, Any],
    notified: Sequence[str], deaf: bool,
) -> type:  # fmt: skip
    """A class, without a call of the program's hooks. notified: names of what has one."""
    space = {key: None if key in notified else value for key, value in namespace.items()}
    by = type("Deaf", (meta,), {"__slots__": (), "mro": _deafened}) if deaf else meta
    made: Any = maker.__new__(by, name, bases, space)
    for key in notified:
        type.__setattr__(made, key, namespace[key])
    if deaf:
        set_metaclass(made, meta)
        type.__setattr__(made, "__bases__", made.__bases__)  # for the order of its own
    return made  # type: ignore[no-any-return]


def base_of(base: Value) -> type:
    if not isinstance(base, ClassValue):
        raise Break("FB0020", f"a class derives from {base.describe()}")
    kind = base.python_class
    if issubclass(kind, torch.Tensor | torch.autograd.Function) or base.written:
        raise Break("FB0020", f"a class derives from {base.describe()}")
    return kind


class DataclassDecorator(PartialValue):
    """`dataclass(...)` before it is given the class."""

    cls = types.FunctionType

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(dataclasses.dataclass, [], self.kwargs)
