"""Effects of the code of a wrapper subclass, found without running it.

In: a class. Out: `examine`: the first effect that its `__torch_dispatch__`, or what that reaches,
may have, or None; and what it reads of the program's modules and classes. Invariant: code that runs
when a graph is traced, and not at its calls, must have no effect and read nothing unguarded: what
cannot be shown to be fresh counts as shared, what cannot be resolved as an effect. Torch's and
Python's own functions are trusted, but for those that are made for an effect.
"""

from __future__ import annotations

import builtins
import enum
import inspect
import operator
import re
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.bytecode.decode import CodeBody, decode
from flambeau_capture.bytecode.flow import positions_in, predecessors
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.stack import stack_effect
from flambeau_capture.values.registry import trusted_name

ENTRIES = (
    "__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__", "__new__", "__init__",
)  # fmt: skip
#: Python's own functions and modules that are there for what they do besides
_EFFECTS = frozenset(
    {
        print, input, open, exec, eval, compile, setattr, delattr, globals, locals, breakpoint,
        __import__, id, vars,
        operator.setitem, operator.delitem, operator.iadd, operator.iconcat, operator.ior,
        operator.iand, operator.ixor, operator.imul,
    }
)  # fmt: skip
_MODULES = frozenset(
    {
        "asyncio", "atexit", "gc", "io", "logging", "os", "pathlib", "queue", "random", "shutil",
        "socket", "subprocess", "sys", "tempfile", "threading", "time", "traceback", "warnings",
        "weakref", "contextvars", "datetime", "secrets", "uuid",
    }
)  # fmt: skip
#: methods that change what they are called on
_CHANGING = frozenset(
    {
        "append", "extend", "insert", "pop", "popitem", "remove", "clear", "update", "setdefault",
        "add", "discard", "sort", "reverse", "difference_update", "intersection_update",
        "symmetric_difference_update", "__setattr__", "__delattr__", "__setitem__", "__delitem__",
        "appendleft", "extendleft", "popleft", "write", "writelines", "put", "send", "move_to_end",
    }
)  # fmt: skip
_CONSTANTS = (
    int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), slice, range,
    enum.Enum,
)  # fmt: skip
_MAKERS = frozenset({"_make_wrapper_subclass", "_make_subclass", "__new__", "copy", "deepcopy"})


_KINDS = (list, dict, set, tuple, str, int, float, type, object, re.Match, re.Pattern)
_KNOWN_METHODS = frozenset(chain.from_iterable(dir(k) for k in _KINDS))


@dataclass
class Examined:
    """effect: in words, with its line; read: a function and the name of a global of it, with what
    that is; tables: containers that are read; members: names of the class's own that are read."""

    effect: str | None = None
    read: dict[tuple[int, str], tuple[types.FunctionType, str, Any]] = field(default_factory=dict)
    tables: list[Any] = field(default_factory=list)
    members: dict[str, None] = field(default_factory=dict)
    functions: list[types.FunctionType] = field(default_factory=list)
    names: set[str] = field(default_factory=set)  # of attributes, and texts that may be such


def examine(kind: type) -> Examined:
    """All that the operators of a class may run."""
    search = _Search(kind)
    search.run()
    return search.found


class _Search:
    """Functions of the program that are reached and not looked at; those that were."""

    def __init__(self, kind: type) -> None:
        self.kind, self.found = kind, Examined()
        self._seen: set[int] = set()
        self._waiting: list[types.FunctionType] = []
        self._imported: types.ModuleType | None = None

    def run(self) -> None:
        """Look at everything that is reached, up to the first effect."""
        for name in ENTRIES:
            self._member(self.kind, name)
        while self._waiting and self.found.effect is None:
            function = self._waiting.pop()
            self.found.functions.append(function)
            for code in _codes(function.__code__):
                self._look_at(function, code)

    def _reach(self, value: Any) -> bool:
        """Take in what code may call or read; False: nothing is known of it."""
        function = inspect.unwrap(value) if isinstance(value, types.FunctionType) else value
        function = getattr(function, "__func__", function)
        if isinstance(function, property):
            return function.fget is None or self._reach(function.fget)
        if isinstance(function, types.FunctionType):
            for one in (value, function):
                if type(one) is not types.FunctionType:
                    continue
                if id(one) not in self._seen and not trusted_name(one.__module__ or ""):
                    self._seen.add(id(one))
                    self._waiting.append(one)
            return True
        if isinstance(value, type):
            if id(value) not in self._seen and not trusted_name(value.__module__):
                self._seen.add(id(value))
                for name in ENTRIES if hasattr(value, "__torch_dispatch__") else ENTRIES[-2:]:
                    self._member(value, name)
            return True
        if isinstance(value, dict | list | tuple | set | frozenset):
            if id(value) in self._seen:
                return True
            self._seen.add(id(value))
            if not isinstance(value, tuple | frozenset):
                self.found.tables.append(value)
            parts = chain(value, value.values()) if isinstance(value, dict) else iter(value)
            known = [self._reach(part) for part in parts]  # each, also after one that is not
            return all(known)
        if isinstance(value, (*_CONSTANTS, types.ModuleType, types.BuiltinFunctionType)):
            return True
        return type(value).__module__.partition(".")[0] in ("torch", "typing", "re")

    def _member(self, owner: type, name: str) -> None:
        """Take in what a class has under a name, and what it overrides, which it may call."""
        for base in owner.__mro__:
            if name in vars(base) and not trusted_name(base.__module__):
                if base in self.kind.__mro__:
                    self.found.members[name] = None
                self._reach(vars(base)[name])

    def _look_at(self, function: types.FunctionType, code: types.CodeType) -> None:
        names = _Names(self.kind, function, decode(code))
        steps = names.steps
        self.found.names.update(code.co_names, (x for x in code.co_consts if isinstance(x, str)))
        for place, step in enumerate(steps):
            words = self._effect(names, place, step)
            if words is not None and self.found.effect is None:
                line = max((_line(s) for s in steps[: place + 1]), default=0)
                where = f"{code.co_filename}:{line or code.co_firstlineno}"
                self.found.effect = f"{code.co_name} {words} ({where})"

    def _effect(self, names: _Names, place: int, step: Instruction) -> str | None:
        name = str(step.argval)
        if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            return f"writes to the global {name}"
        if step.opname in ("STORE_DEREF", "DELETE_DEREF") and name in names.code.co_freevars:
            return f"writes to {name} of an enclosing function"
        if step.opname in ("STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR", "DELETE_SUBSCR"):
            at = 1 if step.opname.endswith("SUBSCR") else 0
            if not names.is_fresh(names.producer(place, at)):
                what = "an element" if at else f"the attribute {name}"
                return f"sets {what} of an object that may exist before"
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            return self._reads(names, name)
        if step.opname in ("LOAD_METHOD", "LOAD_ATTR"):
            return self._attribute(names, place, name)
        if step.opname == "IMPORT_NAME":
            self._imported = sys.modules.get(name)
            if name.partition(".")[0] in _MODULES:
                return f"imports {name}"
            return None  # another is loaded once, whenever that is
        if step.opname == "IMPORT_FROM":
            if self._imported is None:
                return f"imports {name} of a module that is not loaded"
            value = getattr(self._imported, name, None)
            return None if self._reach(value) else f"uses {name}, a {type(value).__name__} object"
        if step.opname == "BINARY_OP" and "=" in name:
            source = names.producer(place, 1)
            if names.is_kept(source):
                return f"applies {name} to an object that may exist before"
        if step.opname == "LOAD_CONST" and type(step.argval) is str and name in _CHANGING:
            if "getattr" in names.code.co_names:
                return f"may call {name} of an object that may exist before"
        return None

    def _reads(self, names: _Names, name: str) -> str | None:
        known, value = names.value(name)
        if not known:
            return None  # a variable, or a name that is not there: it raises
        if _is_made_for_effect(value):
            return f"uses {name}"
        owner = names.function
        if owner.__globals__.get(name, self) is value and not trusted_name(owner.__module__ or ""):
            self.found.read[id(owner.__globals__), name] = owner, name, value
        if not self._reach(value):
            return f"uses {name}, a {type(value).__name__} object"
        return None

    def _attribute(self, names: _Names, place: int, name: str) -> str | None:
        source = names.producer(place, 0)
        known, base = names.constant(source)
        if known:
            if isinstance(base, types.ModuleType) and not trusted_name(base.__name__):
                value = getattr(base, name, None)
                if not self._reach(value):
                    return f"uses {name}, a {type(value).__name__} object"
            value = getattr(base, name, None) if isinstance(base, types.ModuleType) else None
            if value is not None and _is_made_for_effect(value):
                return f"uses {name}"
        own = name == "__setattr__" and names.code.co_name == "__init__"  # of frozen data classes
        if name in _CHANGING and not own and not names.is_fresh(source):
            return f"calls {name} of an object that may exist before"
        self._member(self.kind, name)
        if known and isinstance(base, type):
            self._member(base, name)
        is_method = names.steps[place].opname == "LOAD_METHOD" or _pushed(names.steps[place]) == 2
        if is_method and not known and name not in _KNOWN_METHODS and not hasattr(self.kind, name):
            return f"calls {name} of an object of which nothing is known"
        return None


class _Names:
    """What the names of a code object are, and where its instructions take operands from."""

    def __init__(self, kind: type, function: types.FunctionType, body: CodeBody) -> None:
        self.kind, self.function = kind, function
        self.code, self.steps = body.code, body.instructions
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        self._cells = dict(cells)
        count = self.code.co_argcount + self.code.co_kwonlyargcount
        self._arguments = self.code.co_varnames[:count]
        self._asking: set[Any] = set()
        where, before = positions_in(body), predecessors(body)
        self._before = [{where[one] for one in before[step]} for step in self.steps]
        self._joins = {step.target for step in self.steps} | {r.handler for r in body.regions}

    def value(self, name: str) -> tuple[bool, Any]:
        """What a global, or a variable of an enclosing function, is."""
        if name in self._cells:
            try:
                return True, self._cells[name].cell_contents
            except ValueError:
                return False, None
        if name in self.function.__globals__:
            return True, self.function.__globals__[name]
        return hasattr(builtins, name), getattr(builtins, name, None)

    def constant(self, place: int | None) -> tuple[bool, Any]:
        """What an instruction loads, if that is a name or an attribute of a module."""
        if place is None:
            return False, None
        step = self.steps[place]
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"):
            return self.value(str(step.argval))
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            known, base = self.constant(self.producer(place, 0))
            of_torch = type(base).__module__.partition(".")[0] == "torch"
            if known and (isinstance(base, types.ModuleType) or of_torch):
                return hasattr(base, str(step.argval)), getattr(base, str(step.argval), None)
        if step.opname == "LOAD_FAST":
            stores = [n for n, s in enumerate(self.steps) if s.argval == step.argval and _stores(s)]
            if len(stores) == 1 and step.argval not in (*self._arguments, *self._asking):
                self._asking.add(step.argval)
                found = self.constant(self.producer(stores[0], 0))
                self._asking.discard(step.argval)
                return found
        return False, None

    def producer(self, place: int, depth: int) -> int | None:
        """The instruction that pushed the operand at a depth below the top; None: unknown."""
        for before in range(place - 1, -1, -1):
            step = self.steps[before]
            if self.steps[before + 1] in self._joins:
                return None  # it may be one of several
            count = int(step.arg or 0)
            if step.opname == "SWAP":
                depth = count - 1 if depth == 0 else 0 if depth == count - 1 else depth
                continue
            if step.opname == "COPY":
                depth = count - 1 if depth == 0 else depth - 1
                continue
            if step.opname in _MOVING or step.target is not None:
                return None
            pushed = _pushed(step)
            if depth < pushed:
                return before
            depth += _taken(step, pushed) - pushed
        return None

    def is_fresh(self, place: int | None) -> bool:
        """Whether an instruction gives an object that was made in the same call."""
        if place is None:
            return False
        step = self.steps[place]
        if step.opname.startswith("BUILD_") or step.opname in ("LIST_TO_TUPLE", "BINARY_SLICE"):
            return True
        if step.opname == "BINARY_OP":
            return "=" not in str(step.argval)
        if step.opname in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_FAST_BORROW"):
            return self._is_fresh_variable(str(step.argval), place)
        if step.opname.startswith("CALL"):
            return self._makes(place)
        return False

    def _is_fresh_variable(self, name: str, place: int) -> bool:
        own = self.code.co_name in ("__init__", "__new__") and name == "self"
        if own or name == "kwargs":  # a dict that is made for each call
            return True
        if (name, place) in self._asking:
            return True  # around a loop: it is what it was
        stores = self._reaching(name, place)
        if not stores:
            return False
        self._asking.add((name, place))
        try:
            return all(self.is_fresh(self.producer(store, 0)) for store in stores)
        finally:
            self._asking.discard((name, place))

    def _reaching(self, name: str, place: int) -> list[int]:
        """The stores of a variable whose value an instruction may see; none: not all are known."""
        found: list[int] = []
        waiting, seen = [place], {place}
        while waiting:
            at = waiting.pop()
            before = self._before[at]
            if not before:  # the beginning, with the argument, or a handler of exceptions
                return []
            for one in before - seen:
                seen.add(one)
                step = self.steps[one]
                (found if step.argval == name and _stores(step) else waiting).append(one)
        return found

    def is_kept(self, place: int | None) -> bool:
        """Whether an instruction gives what a module or an object has, or a variable that does."""
        if place is None:
            return False
        step = self.steps[place]
        if step.opname == "LOAD_FAST":
            stores = [n for n, s in enumerate(self.steps) if s.argval == step.argval and _stores(s)]
            return any(
                source is not None and self.steps[source].opname in _OF_OTHERS
                for source in (self.producer(n, 0) for n in stores)
            )
        return step.opname in _OF_OTHERS

    def _makes(self, place: int) -> bool:
        """Whether a call is that of a class, or of a function that makes what it returns."""
        depth = int(self.steps[place].arg or 0)
        if self.steps[place - 1].opname == "PRECALL":
            place -= 1
        for at in (depth, depth + 1):
            called = self.producer(place, at)
            if called is None:
                continue
            step = self.steps[called]
            if step.opname in ("LOAD_METHOD", "LOAD_ATTR") and step.argval in _MAKERS:
                return True
            first = self._arguments[:1]
            if step.opname == "LOAD_FAST" and (step.argval,) == first and step.argval == "cls":
                return True
            known, value = self.constant(called)
            if known and isinstance(value, type):
                return True
            if known and getattr(value, "__module__", None) == "torch.utils._pytree":
                return True
            if known and compat.is_function_of_torch(value):
                return True  # a tensor, and what is done to one is in the graph
        return False


_OF_OTHERS = ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_NAME")


def _line(step: Instruction) -> int:
    return (step.positions and step.positions.lineno) or 0


def _stores(step: Instruction) -> bool:
    return step.opname in ("STORE_FAST", "STORE_DEREF")


_MOVING = ("UNPACK_SEQUENCE", "UNPACK_EX", "FOR_ITER", "GET_ITER", "SEND", "RETURN_VALUE")
_PADDING = ("NOP", "RESUME", "KW_NAMES", "COPY_FREE_VARS")
_PUSH_NOTHING = ("STORE_", "POP_", "DELETE_", "LIST_", "SET_", "DICT_", "MAP_")


def _pushed(step: Instruction) -> int:
    """How many of what an instruction leaves on the stack are its own."""
    if step.opname in ("PRECALL", *_PADDING) or step.opname.startswith(_PUSH_NOTHING):
        return 1 if step.opname == "LIST_TO_TUPLE" else 0
    if step.opname == "LOAD_METHOD":
        return 2
    if step.opname in ("LOAD_GLOBAL", "LOAD_ATTR"):  # with a NULL, or the receiver, for a call
        return stack_effect(step, jump=False) + (step.opname == "LOAD_ATTR")
    return 1


def _taken(step: Instruction, pushed: int) -> int:
    return pushed - stack_effect(step, jump=False)


def _is_made_for_effect(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__.partition(".")[0] in _MODULES
    try:
        if value in _EFFECTS:
            return True
    except TypeError:  # that has no hash
        return False
    module = getattr(value, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] in _MODULES


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)
