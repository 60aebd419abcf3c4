"""Light fake tensor mode: no import of torch's own compiler.

In: nothing. Out: a class of modes whose answers are those of torch's `FakeTensorMode`. Invariant:
the methods are torch's, run on other globals: what they import from the compiler - three settings,
names of where a size comes from, one error - comes from `ASKED` below. A torch that requests
anything else, which is looked for in the methods' code before any of them runs, has its own mode
used as it is. That, and loading half a second of modules at the first call, is all the difference:
nothing here loads the compiler or queries it. Tried on torch 2.13; the check decides on others.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from types import CellType, CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any

import torch
from torch._compile import _disable_dynamo

PLACES = ("torch._refs", "torch._decomp", "torch._meta_registrations")
"""Where torch keeps them; read where torch has loaded them."""
UNWATCHED = "__dynamo_disable"
"""Where torch keeps, on a function, the form of it that its compiler leaves alone."""


def leave_unwatched(is_loaded: Callable[[], bool]) -> None:
    """Let the rules run as they are while the compiler is not loaded."""
    wrapping = _disable_dynamo(lambda: None).__code__
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(PLACES)]
    found = [rule for module in modules for rule in vars(module).values()]
    seen: set[int] = set()
    while found:
        rule = found.pop()
        if not isinstance(rule, FunctionType) or id(rule) in seen:
            continue
        seen.add(id(rule))
        inside = [cell.cell_contents for cell in rule.__closure__ or () if _filled(cell)]
        found += inside
        if rule.__code__ is wrapping:
            for wrapped in inside:
                if isinstance(wrapped, FunctionType):
                    wrapped.__dict__.setdefault(UNWATCHED, _Unwatched(rule, wrapped, is_loaded))


def _filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it raises where nothing has been put
    except ValueError:
        return False
    return True


class _Unwatched:
    """A rule as it is, until the compiler is loaded: then what torch wraps it in."""

    _torchdynamo_disable = True  # should the compiler look at it before that

    def __init__(
        self, rule: Callable[..., Any], wrapped: Any, is_loaded: Callable[[], bool]
    ) -> None:
        self.rule, self.wrapped, self.is_loaded = rule, wrapped, is_loaded

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.is_loaded():
            return self.wrapped(*args, **kwargs)
        if self.wrapped.__dict__.get(UNWATCHED) is self:
            self.wrapped.__dict__.pop(UNWATCHED, None)  # torch puts its own there
        return self.rule(*args, **kwargs)


COMPILER = "torch._dynamo"


def is_loaded() -> bool:
    """Whether the program has loaded torch's compiler."""
    return COMPILER in sys.modules


class _FakePlace:
    """Where a tensor comes from, to those who only hand it on."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


def _refuse(gb_type: str, **_: Any) -> Any:
    """A tensor of a kind that has no fake form."""
    from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

    raise UnsupportedFakeTensorException(gb_type)


def _switch(name: str, default: str) -> bool:
    return os.environ.get(name, default) == "1"


#: all that the methods below take from the compiler: the settings have the values that they have
#: in a process that has never set them
ASKED: Mapping[str, Callable[[], Any]] = MappingProxyType(
    {
        "config.fake_tensor_cache_enabled": lambda: _switch(
            "TORCH_FAKE_TENSOR_DISPATCH_CACHE", "1"
        ),
        "config.fake_tensor_cache_crosscheck_enabled": lambda: _switch(
            "TORCH_FAKE_TENSOR_DISPATCH_CACHE_CROSSCHECK", "0"
        ),
        "config._custom_ops_profile": lambda: None,
        "source.AttrSource": lambda: _FakePlace,
        "source.CallMethodItemSource": lambda: _FakePlace,
        "source.ConstantSource": lambda: _FakePlace,
        "source.EphemeralSource": lambda: _FakePlace,
        "source.FloatTensorSource": lambda: _FakePlace,
        "source.RandomValueSource": lambda: _FakePlace,
        "exc.unimplemented": lambda: _refuse,
    }
)


# -- what a method imports ------------------------------------------------------------------------


def compiler_names_read(code: CodeType) -> Iterator[str]:
    """Names of the compiler, below it, that a code object or one inside it imports or reads. The
    name of a module alone has a dot at its end where nothing is taken from it at once."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _PADDING]
    for place, step in enumerate(steps):
        if step.opname == "IMPORT_NAME" and _is_below(step.argval):
            module = step.argval.removeprefix(COMPILER).removeprefix(".")
            taken = list(_taken(steps[place + 1 :]))
            yield from (f"{module}.{name}" for name in taken or ("",))
        elif step.opname in _ATTRIBUTES and step.argval == LAST:
            after = takewhile(lambda one: one.opname in _ATTRIBUTES, steps[place + 1 :])
            yield ".".join([one.argval for one in after][:2])
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from compiler_names_read(inner)


_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_PADDING = ("CACHE", "NOP", "EXTENDED_ARG")
LAST = COMPILER.rpartition(".")[2]


def _is_below(name: str) -> bool:
    return name == COMPILER or name.startswith(COMPILER + ".")


def _taken(steps: list[dis.Instruction]) -> Iterator[str]:
    """The names of a `from` import: each is stored before the next is taken."""
    while len(steps) > 1 and steps[0].opname == "IMPORT_FROM":
        yield steps[0].argval
        steps = steps[2:]


def is_answered(code: CodeType) -> bool:
    """Whether `ASKED` has all that a code object takes from the compiler."""
    modules = {name.partition(".")[0] for name in ASKED}
    return all(
        name in ASKED or (name.endswith(".") and name[:-1] in modules)
        for name in compiler_names_read(code)
    )


# -- what it is answered -------------------------------------------------------------------------


class _Compiler(ModuleType):
    """What stands where the methods would read the compiler: `ASKED`, and nothing else."""

    def __init__(self) -> None:
        super().__init__("what fake tensors ask of a compiler")
        for name, answer in ASKED.items():
            module, _, last = name.partition(".")
            self.__dict__.setdefault(module, ModuleType(module)).__dict__[last] = answer()


class _Torch(ModuleType):
    """Torch as it is loaded, with that compiler."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.__dict__[LAST] = _Compiler()

    def __getattr__(self, name: str) -> Any:
        try:
            return vars(torch)[name]
        except KeyError:
            raise AttributeError(f"torch has not loaded {name}") from None


def _answering(compiled_for: ModuleType) -> Callable[..., Any]:
    """What `import` calls in the methods."""

    def answer(name: str, *where: Any) -> Any:
        if _is_below(name):
            found: Any = compiled_for
            _, _, taken, _ = where  # its dicts, what is taken of the module, and from how far up
            for part in name.split(".")[1:] if taken else ():
                found = getattr(found, part)
            return found
        imported = builtins.__import__(name, *where)
        return compiled_for if imported is torch else imported

    return answer


def _light(method: Any) -> Any:
    """The method of torch's, with these answers. Raises TypeError where it is none of Python's or
    needs more than that."""
    if not isinstance(method, FunctionType) or not is_answered(method.__code__):
        raise TypeError(f"{method!r} is no function of Python that can do with {', '.join(ASKED)}")
    standing = _torch_alone()
    names = {
        **method.__globals__,
        "torch": standing,
        "__builtins__": {**vars(builtins), "__import__": _answering(standing)},
    }
    made = FunctionType(
        method.__code__, names, method.__name__, method.__defaults__, method.__closure__
    )
    made.__kwdefaults__ = method.__kwdefaults__
    return made


@functools.cache
def _torch_alone() -> _Torch:
    return _Torch()


def _unless_symbolic(light: Any, plain: Any, place: int) -> Any:
    """`light`, and `plain` for a call with a shape environment (named, or argument `place`)."""

    @functools.wraps(plain)
    def either(*args: Any, **kwargs: Any) -> Any:
        environment = kwargs.get("shape_env", args[place] if len(args) > place else None)
        return (light if environment is None else plain)(*args, **kwargs)

    return either


@functools.cache
def light_fake_mode() -> Any:
    """The class; None where this torch is built in another way."""
    from torch._subclasses.fake_tensor import FakeTensorConverter, FakeTensorMode
    from torch._subclasses.meta_utils import MetaConverter

    try:
        begin = _light(FakeTensorMode.__init__)
        dispatch = _light(FakeTensorMode._dispatch_impl)
        # torch wraps it so that its compiler leaves it alone; there is none that could look
        entered: Any = getattr(FakeTensorMode.__torch_dispatch__, "__wrapped__", None)
        convert = _unless_symbolic(
            _light(FakeTensorConverter.from_real_tensor), FakeTensorConverter.from_real_tensor, 4
        )
        describe = _unless_symbolic(_light(MetaConverter.meta_tensor), MetaConverter.meta_tensor, 2)
    except (AttributeError, TypeError):
        return None
    if entered is None:
        return None
    leave_unwatched(is_loaded)

    class LightFakeMode(FakeTensorMode):
        """`FakeTensorMode` of a process that has not loaded torch's compiler."""

        def __init__(self, **kwargs: Any) -> None:
            if kwargs.get("shape_env") is not None:
                super().__init__(**kwargs)
                return
            begin(self, **kwargs)
            converter: Any = self.fake_tensor_converter
            converter.from_real_tensor = functools.partial(convert, converter)
            meta: Any = converter.meta_converter
            meta.meta_tensor = functools.partial(describe, meta)

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        __torch_dispatch__ = entered
        _dispatch_impl = dispatch

    return LightFakeMode
