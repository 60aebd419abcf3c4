"""Installation: `torch.compile` and its relatives become Flambeau's, by public names, and back.

In: the names of `NAMES`. Out: functions in their place that call `flambeau.switching.stand_ins`.
Invariant: nothing of torch's compile stack is imported: what the program has not loaded yet is
patched when it is. Torch's own code goes on calling what it called before, and a function that
somebody kept passes on to torch's once uninstalled.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import CellType, ModuleType
from typing import Any

from flambeau.switching.stack import STACK
from flambeau.switching.variable import INSTALL

#: module to the names that are replaced there, where that torch has them
NAMES: Mapping[str, str] = {
    "torch": "compile",
    "torch.compiler": (
        "allow_in_graph assume_constant_result cudagraph_mark_step_begin disable "
        "get_default_backend list_backends load_cache_artifacts reset save_cache_artifacts "
        "set_default_backend set_enable_guard_collectives set_stance substitute_in_graph"
    ),
    STACK["dynamo"]: (
        "allow_in_graph disallow_in_graph explain list_backends optimize optimize_assert reset "
        "run set_stance substitute_in_graph"
    ),
}
#: the functions of torch that only pass a program's call of `torch.compile` on
PASSING_ON = frozenset({"torch.nn.modules.module", "torch.compiler"})
#: whose wrappers are torch's own, as `deprecated` and `mock.patch` are
_NO_LIBRARIES = {*sys.stdlib_module_names, "torch", "flambeau", "typing_extensions"}

_LOCK = threading.RLock()
_patches: dict[tuple[str, str], tuple[Any, Callable[..., Any], CellType | None]] = {}
_installed = False


def is_installed() -> bool:
    """Whether `torch.compile` is Flambeau's now."""
    return _installed


def install() -> None:
    """Let programs and libraries that call `torch.compile`, `Module.compile`, `torch.compiler` and
    `torch._dynamo` run on Flambeau, unmodified.

    It holds for what is called from now on: a function that is compiled already goes on as it was.
    A name that was imported before (`from torch import compile`) stays torch's: install first, or
    set FLAMBEAU_INSTALL=1, which installs when torch is imported. Installing twice is installing
    once. If it fails, nothing has changed.
    """
    global _installed
    import torch  # not before somebody installs

    with _LOCK:
        if _installed:
            return
        _installed = True
        try:
            for name in NAMES:
                if name in sys.modules:
                    _patch(sys.modules[name])
            if STACK["dynamo"] not in sys.modules:
                sys.meta_path.insert(0, _WATCH)
            stance = _stance_of_the_stack()
            if stance != "default":
                _stand_ins().adopt_stance(stance)
        except BaseException:
            uninstall()
            raise
    del torch


def uninstall() -> None:
    """Put back every name that `install` replaced.

    What Flambeau has compiled stays compiled. A name that somebody has replaced since is left to
    them: what they replaced, if they call it, is torch's again.
    """
    global _installed
    with _LOCK:
        if _WATCH in sys.meta_path:
            sys.meta_path.remove(_WATCH)
        for (module, name), (original, ours, cell) in _patches.items():
            owner = sys.modules.get(module)
            if cell is not None:
                if cell.cell_contents is ours:
                    cell.cell_contents = original
            elif owner is not None and owner.__dict__.get(name) is ours:
                setattr(owner, name, original)
        _patches.clear()
        _installed = False


def autoload() -> None:
    """What torch calls when it is imported (entry-point group `torch.backends`)."""
    if os.environ.get(INSTALL, "0") not in ("", "0"):
        install()


def _stand_ins() -> Any:
    from flambeau.switching import stand_ins  # it needs all of Flambeau, which installing does not

    return stand_ins


def _stance_of_the_stack() -> str:
    """The stance that was set before, where it is known."""
    frames = sys.modules.get(f"{STACK['dynamo']}.eval_frame")
    return str(getattr(getattr(frames, "_stance", None), "stance", "default"))


def _patch(module: ModuleType) -> None:
    """Replace the names of one module, all or none of them. What a library has wrapped around a
    function of torch's, to see its calls, stays around it."""
    names = [name for name in NAMES[module.__name__].split() if name in module.__dict__]
    for name, (original, cell) in {name: _innermost(vars(module)[name]) for name in names}.items():
        if getattr(original, "__code__", name) in _replacement.__code__.co_consts:
            continue  # of an installation before: what is wrapped around it goes on to call it
        ours = _replacement(name, original)
        _patches[module.__name__, name] = original, ours, cell
        if cell is None:
            setattr(module, name, ours)
        else:
            cell.cell_contents = ours


def _innermost(function: Any) -> tuple[Any, CellType | None]:
    """What wrappers that are not torch's call in the end, and the cell that they have it from."""

    def home(function: Any) -> str:
        return str(getattr(function, "__globals__", {}).get("__name__", "torch")).partition(".")[0]

    def contents(cell: CellType) -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # the library has yet to fill it
            return None

    cell = None
    while home(function) not in _NO_LIBRARIES:
        inner = getattr(function, "__wrapped__", None)
        holding = (each for each in function.__closure__ or () if contents(each) is inner)
        if inner is None or (found := next(holding, None)) is None:
            break
        function, cell = inner, found
    return function, cell


def _replacement(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands where `original` was."""

    @functools.wraps(original, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        of_torch = caller == "torch" or caller.startswith("torch.")
        passed_on = name == "compile" and caller in PASSING_ON
        if (of_torch and not passed_on) or not _installed:
            return original(*args, **kwargs)
        return getattr(_stand_ins(), name)(original, *args, **kwargs)

    return call


class _Watch(importlib.abc.MetaPathFinder):
    """Patches a module of `NAMES` once it is loaded; on `sys.meta_path` while one is missing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in NAMES or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)  # of NAMES, one is loaded late; and this looks for it below
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            with _LOCK:
                if _installed:
                    _patch(module)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


_WATCH = _Watch()
