"""The part of `_torch_compat` that makes fake tensors (tried on torch 2.13; on another torch, or
where something here does not fit, torch's own mode is used as it is).

In: nothing. Out: a mode in which operators compute metadata only. Invariant: the mode is torch's,
method by method; these methods only do not load torch's compiler. They do so for two settings that
it has and for names of where a size comes from, which fixed sizes have no use for; that took half
a second of the first call of a program that never compiles with it.
"""

from __future__ import annotations

import builtins
import functools
import os
import sys
from collections.abc import Callable, Mapping
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch
from torch._compile import _disable_dynamo

COMPILER = "torch._dynamo"


def new_fake_mode() -> Any:
    """A mode for one capture. Imported late: it is many modules."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    if COMPILER in sys.modules:
        return FakeTensorMode(allow_non_fake_inputs=False)
    made = _light_class()
    return (made or FakeTensorMode)(allow_non_fake_inputs=False)


class _Place:
    """Where a tensor comes from, to those who only hand it on."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class _StandIn(ModuleType):
    """A module that has some names of its own while the compiler is not loaded; all others, and
    then all, are asked of the real one."""

    def __init__(self, real: Callable[[], Any], own: Mapping[str, Any]) -> None:
        super().__init__("stand_in")
        self.__dict__["_real"] = real
        self.__dict__["_own"] = own

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__["_own"]
        if name in own and COMPILER not in sys.modules:
            return own[name]
        return getattr(self.__dict__["_real"](), name)


def _switch(name: str, default: str) -> bool:
    return os.environ.get(name, default) == "1"


@functools.cache
def _torch_alone() -> _StandIn:
    """Torch, with what its fake tensors ask of its compiler."""

    def compiler() -> Any:
        return getattr(torch, COMPILER.rpartition(".")[2])  # loads it

    config = _StandIn(
        lambda: compiler().config,
        {
            # their defaults, as the settings are read
            "fake_tensor_cache_enabled": _switch("TORCH_FAKE_TENSOR_DISPATCH_CACHE", "1"),
            "fake_tensor_cache_crosscheck_enabled": _switch(
                "TORCH_FAKE_TENSOR_DISPATCH_CACHE_CROSSCHECK", "0"
            ),
            "_custom_ops_profile": None,
        },
    )
    source = _StandIn(
        lambda: compiler().source,
        dict.fromkeys(("AttrSource", "ConstantSource", "RandomValueSource"), _Place),
    )
    stand_in = _StandIn(compiler, {"config": config, "source": source})
    return _StandIn(lambda: torch, {COMPILER.rpartition(".")[2]: stand_in})


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Any = (),
    level: int = 0,
) -> Any:
    """What `import` calls in the methods below."""
    if COMPILER not in sys.modules and name in (f"{COMPILER}.config", f"{COMPILER}.source"):
        last = name.rpartition(".")[2]
        stand_in = getattr(_torch_alone(), COMPILER.rpartition(".")[2])
        return getattr(stand_in, last) if fromlist else _torch_alone()
    found = builtins.__import__(name, globals, locals, fromlist, level)
    return _torch_alone() if found is torch and COMPILER not in sys.modules else found


def _light(method: Any) -> Any:
    """The method of torch's, with these imports. Raises TypeError where it is none of Python's."""
    if not isinstance(method, FunctionType):
        raise TypeError(f"{method!r} is no function of Python")
    names = {
        **method.__globals__,
        "torch": _torch_alone(),
        "__builtins__": {**vars(builtins), "__import__": _import},
    }
    made = FunctionType(
        method.__code__, names, method.__name__, method.__defaults__, method.__closure__
    )
    made.__kwdefaults__ = method.__kwdefaults__
    return made


def _unless_symbolic(light: Any, plain: Any, place: int) -> Any:
    """`light`, and `plain` for a call with a shape environment (named, or argument `place`)."""

    @functools.wraps(plain)
    def either(*args: Any, **kwargs: Any) -> Any:
        environment = kwargs.get("shape_env", args[place] if len(args) > place else None)
        return (light if environment is None else plain)(*args, **kwargs)

    return either


SHAPE_RULES = ("torch._refs", "torch._decomp", "torch._meta_registrations")
"""Where torch keeps the rules that say what an operator's result looks like."""
UNWATCHED = "__dynamo_disable"
"""Where torch keeps, on a function, the form of it that its compiler leaves alone."""


def _plain_rules() -> None:
    """Let torch's shape rules run as they are while its compiler is not loaded.

    Many are wrapped so that the compiler, which the first call of each would load, leaves them
    alone. From the moment it is loaded they are wrapped as ever.
    """
    wrapping = _disable_dynamo(lambda: None).__code__
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(SHAPE_RULES)]
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
                    wrapped.__dict__.setdefault(UNWATCHED, _unwatched(rule, wrapped))


def _filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it raises where nothing has been put
    except ValueError:
        return False
    return True


def _unwatched(rule: Callable[..., Any], wrapped: Any) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if COMPILER not in sys.modules:
            return wrapped(*args, **kwargs)
        if wrapped.__dict__.get(UNWATCHED) is run:
            wrapped.__dict__.pop(UNWATCHED, None)  # torch puts its own there
        return rule(*args, **kwargs)

    run.__dict__["_torchdynamo_disable"] = True  # should the compiler look at it before that
    return run


@functools.cache
def _light_class() -> Any:
    """Torch's mode without its compiler; None where this torch is built in another way."""
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
    _plain_rules()

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
