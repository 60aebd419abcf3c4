"""Recording of frames on disk.

In: a code object with the arguments, closure and globals that it reads; the path of a record. Out:
a record (a file); what it holds. Invariant: recording never disturbs the program: what cannot be
written is named in the record, and a record appears whole or not at all. A record has code and
pickles: load only what you trust.
"""

from __future__ import annotations

import importlib
import io
import marshal
import os
import pickle
import sys
import tempfile
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_capture.errors import ReplayError
from flambeau_capture.source import FrameCall

FORMAT = 1


@dataclass(frozen=True)
class Unrecorded:
    """Stands in a record for an object that could not be written."""

    description: str


@dataclass(frozen=True)
class RecordedFrame:
    """A frame as it was entered. `error` says why it was recorded."""

    code: types.CodeType
    arguments: Mapping[str, Any]
    free: Mapping[str, Any]
    namespace: Mapping[str, Any]
    error: str

    @property
    def missing(self) -> tuple[str, ...]:
        """Names whose objects could not be written."""
        groups = {"argument": self.arguments, "closure": self.free, "global": self.namespace}
        return tuple(
            f"{kind} {name}: {value.description}"
            for kind, group in groups.items()
            for name, value in group.items()
            if isinstance(value, Unrecorded)
        )


# --- writing --------------------------------------------------------------------------------------


def record(folder: str, frame: FrameCall, error: BaseException) -> str:
    """Write a frame into `folder`, which is made if needed; returns the file's path."""
    code, namespace = frame.code, frame.func.__globals__
    names = sorted(name for name in _names(code) if name in namespace)
    payload = {
        "format": FORMAT,
        "python": list(sys.version_info[:2]),
        "torch": torch.__version__,
        "error": f"{type(error).__name__}: {error}",
        "name": namespace.get("__name__", "__replayed__"),
        "code": marshal.dumps(code),
        "arguments": {name: _pack(value) for name, value in frame.arguments.items()},
        "free": {name: _pack(value) for name, value in frame.free.items()},
        "globals": {name: _pack(namespace[name]) for name in names},
    }
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, aside = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            pickle.dump(payload, file)
        number = sum(name.endswith(".frame") for name in os.listdir(folder))
        path = os.path.join(folder, f"{code.co_name}-{os.getpid()}-{number}.frame")
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
    return path


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _pack(value: Any) -> bytes | Unrecorded:
    buffer = io.BytesIO()
    try:
        _Pickler(buffer).dump(value)
    except Exception as error:  # any object may refuse, in any way: the record says which did
        return Unrecorded(f"{type(value).__name__} ({type(error).__name__}: {error})")
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Modules by name; functions that cannot be found by name again, by their code."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, types.FunctionType) and not _found_by_name(obj):
            return _function, _parts(obj)
        return NotImplemented


def _found_by_name(fn: types.FunctionType) -> bool:
    module = sys.modules.get(fn.__module__ or "")
    if module is None or fn.__module__ == "__main__":
        return False
    found: Any = module
    for part in fn.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is fn


def _parts(fn: types.FunctionType) -> tuple[Any, ...]:
    namespace = {
        name: _pack(fn.__globals__[name])
        for name in sorted(_names(fn.__code__))
        if name in fn.__globals__ and fn.__globals__[name] is not fn
    }
    cells = [_pack(cell.cell_contents) for cell in fn.__closure__ or ()]
    return marshal.dumps(fn.__code__), namespace, cells, fn.__defaults__, fn.__kwdefaults__


def _function(
    code: bytes,
    namespace: dict[str, Any],
    cells: list[Any],
    defaults: tuple[Any, ...] | None,
    keyword_defaults: dict[str, Any] | None,
) -> types.FunctionType:
    made = marshal.loads(code)
    scope: dict[str, Any] = {name: _unpack(value) for name, value in namespace.items()}
    scope |= {"__builtins__": __builtins__, "__name__": "__replayed__"}
    closure = tuple(types.CellType(_unpack(cell)) for cell in cells)
    function = types.FunctionType(made, scope, made.co_name, defaults, closure)
    function.__kwdefaults__ = keyword_defaults
    scope.setdefault(made.co_name, function)
    return function


# --- reading --------------------------------------------------------------------------------------


def load(path: str) -> RecordedFrame:
    """The frame of a record. Raises `ReplayError` on what is no record of this Python."""
    try:
        with open(path, "rb") as file:
            payload = pickle.load(file)
    except (OSError, pickle.UnpicklingError, EOFError) as error:
        raise ReplayError(f"{path} cannot be read: {error}") from error
    if not isinstance(payload, dict) or payload.get("format") != FORMAT:
        raise ReplayError(f"{path} is no record of format {FORMAT}")
    if payload["python"] != list(sys.version_info[:2]):
        version = ".".join(map(str, payload["python"]))
        raise ReplayError(f"{path} was recorded by Python {version}; its bytecode is of no other")
    arguments, free, names = (
        {name: _unpack(value) for name, value in payload[group].items()}
        for group in ("arguments", "free", "globals")
    )
    namespace = {"__name__": payload["name"], **names}
    code = marshal.loads(payload["code"])
    return RecordedFrame(code, arguments, free, namespace, payload["error"])


def _unpack(value: bytes | Unrecorded) -> Any:
    if isinstance(value, Unrecorded):
        return value
    try:
        return pickle.loads(value)
    except Exception as error:  # a class that is not to be found here: the frame lists it
        return Unrecorded(f"{type(error).__name__}: {error}")
