"""The module that `torch.compile(module)` gives back, as libraries expect it.

In: a module, its compiled twin, and what compiles. Out: a module around it: `_orig_mod`, keys of
its state with the prefix `_orig_mod.`, the attributes of the module inside, and `isinstance` of the
class that torch has for it. Invariant: the module inside is the program's own object, and only that
has state.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from flambeau_capture.api import compiler_of
from flambeau_capture.frame.module_twins import ORIGINAL
from torch.compiler import is_exporting
from torch.nn import Module

from flambeau.switching.stack import loaded

INSIDE = "_orig_mod"
#: what `forward` calls, as long as it is the one that this class made
_RUN = "__flambeau_run__"
#: the compiled module, which those around it share
_TWIN = "__flambeau_twin__"
#: attributes that the module around has itself
_OWN = frozenset({INSIDE, "dynamo_ctx", "forward", "_torchdynamo_orig_callable", "__dict__"})


class OptimizedModule(Module):
    """A module around another, which runs compiled.

    dynamo_ctx: compiles any other callable as this module was compiled.
    """

    def __init__(self, module: Module, twin: Any, context: Callable[[Any], Any]) -> None:
        Module.__init__(self)
        Module.__setattr__(self, INSIDE, module)

        run = twin.__call__

        @functools.wraps(module.forward)  # exporters read its code and signature
        def forward(*args: Any, **kwargs: Any) -> Any:
            return module(*args, **kwargs) if is_exporting() else run(*args, **kwargs)

        self.__dict__.update(
            {
                ORIGINAL: module,
                "dynamo_ctx": context,
                "forward": forward,
                _RUN: run,
                _TWIN: twin,
                "__flambeau_compiler__": compiler_of(twin),
                "_torchdynamo_orig_callable": module.forward,
            }
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # what `Module.__call__` would do, in less time: hooks of all modules are for those inside
        own = self.__dict__
        if (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or self._compiled_call_impl is not None
        ):
            return Module.__call__(self, *args, **kwargs)
        run = own[_RUN]
        if run is None or is_exporting():
            run = own["forward"]
        return run(*args, **kwargs)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # `isinstance` reads this after the real class. Torch's class for it is there once its
        # compiler is loaded; before that nobody can name it
        return getattr(loaded("dynamo"), "OptimizedModule", OptimizedModule)

    @property
    def training(self) -> bool:  # type: ignore[override]
        return bool(self._orig_mod.training)

    @training.setter
    def training(self, value: bool) -> None:
        inside = self.__dict__.get("_modules", {}).get(INSIDE)
        if inside is not None:  # a module sets it first of all
            inside.training = value

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if INSIDE not in modules or name == INSIDE:
            return Module.__getattr__(self, name)
        return getattr(modules[INSIDE], name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in _OWN or hasattr(type(self), name) or "_modules" not in self.__dict__
        if own and name == "forward":
            self.__dict__[name] = value  # a module too, which is no part of this one
            self.__dict__[_RUN] = None
        elif own or INSIDE not in self.__dict__["_modules"]:
            Module.__setattr__(self, name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN or hasattr(type(self), name):
            Module.__delattr__(self, name)
        else:
            delattr(self._orig_mod, name)

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __dir__(self) -> list[str]:
        return sorted({*Module.__dir__(self), *dir(self._orig_mod)})

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compiled_again, (self.dynamo_ctx, self._orig_mod)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return compiled_again(self.dynamo_ctx, copy.deepcopy(self._orig_mod, memo))


def compiled_again(context: Callable[[Any], Any], module: Module) -> Any:
    """What copies and pickles are made by."""
    return context(module)
