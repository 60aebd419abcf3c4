"""What `object` itself defines: attribute access, `__init__`, equality.

In: an `ObjectValue` and arguments. Out: handlers by name. Invariant: `object.__setattr__` and its
like ask no method of the program's class.
"""

from __future__ import annotations

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.objects.instances import ObjectValue


def _object_setattr(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    self.generic_set_attr(tx, args[0].as_python(), args[1])
    return Constant(None)


def _object_delattr(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    self.generic_del_attr(tx, args[0].as_python())
    return Constant(None)


def _object_getattribute(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    return self.generic_get_attr(tx, args[0].as_python())


def _object_init(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    if args:
        raise Break("FB0005", f"object.__init__ of {self.describe()} with arguments")
    return Constant(None)


def _object_eq(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    return Constant(True) if args[0] is self else Constant(NotImplemented)


def _object_ne(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    return Constant(False) if args[0] is self else Constant(NotImplemented)


OBJECT_METHODS = {
    "__setattr__": _object_setattr,
    "__delattr__": _object_delattr,
    "__getattribute__": _object_getattribute,
    "__init__": _object_init,
    "__init_subclass__": _object_init,
    "__eq__": _object_eq,
    "__ne__": _object_ne,
}

ALWAYS_OBJECT = frozenset({"__setattr__", "__delattr__", "__getattribute__"})
