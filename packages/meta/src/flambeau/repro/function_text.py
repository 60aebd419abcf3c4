"""Source text of a function, made to stand alone.

In: a function. Out: `FunctionText`: its definition without decorators, those of functions that it
calls and that no module offers by name, imports, and what else it reads. Invariant: nothing is read
but what the code names; what text cannot say is an error, not left out.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch

from flambeau.errors import FlambeauError


class CannotWrite(FlambeauError):
    """Something that has no form as a script."""


@dataclass(frozen=True)
class FunctionText:
    """A function by its text.

    definition: the function. helpers: definitions that it needs. imports: lines. constants: plain
    values that it reads, by name. `held`: tensors and modules that it reads, by name.
    """

    definition: ast.FunctionDef
    helpers: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the function is called."""
        return self.definition.name

    @property
    def text(self) -> str:
        """The definition as source."""
        return ast.unparse(self.definition)

    @property
    def statements(self) -> int:
        """How many statements it has."""
        return sum(isinstance(node, ast.stmt) for node in ast.walk(self.definition)) - 1

    def lines(self) -> list[str]:
        """Its constants, and all definitions, as lines of a script."""
        lines = [f"{name} = {value!r}" for name, value in self.constants.items()]
        return lines + [line for each in (*self.helpers, self.text) for line in ("", "", each)]

    def function(self) -> Callable[..., Any]:
        """The function, made anew: nothing that was compiled knows it."""
        scope: dict[str, Any] = {"__name__": "__stands_alone__"}
        exec("\n".join(self.imports), scope)
        scope.update(self.constants)
        scope.update(self.held)
        for text in (*self.helpers, self.text):
            exec(compile(text, f"<{self.name}>", "exec"), scope)
        made: Callable[..., Any] = scope[self.name]
        return made


def function_of(target: Any) -> tuple[types.FunctionType, tuple[Any, ...]]:
    """The function that a call of `target` runs, and what comes before its arguments."""
    if isinstance(target, torch.nn.Module):
        return function_of(target.forward)[0], (target,)
    if isinstance(target, types.MethodType):
        return function_of(target.__func__)[0], (target.__self__,)
    if isinstance(target, types.FunctionType):
        return target, ()
    raise CannotWrite(f"{target!r} is no Python function")


def text_of(function: types.FunctionType) -> FunctionText:
    """The function as text. Raises CannotWrite for what has none."""
    helpers: dict[str, str] = {}
    imports: dict[str, None] = {"import torch": None}
    constants: dict[str, Any] = {}
    held: dict[str, Any] = {}
    waiting, seen, own = [function], {function}, function.__module__
    while waiting:
        current = waiting.pop()
        for name, value in read_by(current).items():
            if isinstance(value, types.FunctionType) and value in seen:
                continue
            beside = isinstance(value, types.FunctionType) and value.__module__ == own
            line = None if beside else import_line(name, value)
            if is_constant(value):
                constants[name] = value
            elif isinstance(value, torch.Tensor | torch.nn.Module):
                held[name] = value
            elif line is not None:
                imports[line] = None
            elif isinstance(value, types.FunctionType):
                seen.add(value)
                waiting.append(value)
                helpers[name] = ast.unparse(definition_of(value, name))
            else:
                raise CannotWrite(f"{name} is a {type(value).__name__} that no module offers")
    name = function.__name__ if function.__name__.isidentifier() else "function"
    return FunctionText(
        definition_of(function, name),
        tuple(reversed(helpers.values())),
        tuple(sorted(imports)),
        constants,
        held,
    )


def read_by(function: types.FunctionType) -> dict[str, Any]:
    """What a function reads from around it, by name: globals, and variables that it closes over."""
    found: dict[str, Any] = {}
    for name in sorted(_names(function.__code__)):
        if name in function.__globals__ and not hasattr(builtins, name):
            found[name] = function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            found[name] = cell.cell_contents
        except ValueError as error:
            raise CannotWrite(f"{name} has no value yet") from error
    return found


def is_constant(value: Any) -> bool:
    """Whether a value is as good as its text."""
    if isinstance(value, tuple | list):
        return type(value) in (tuple, list) and all(map(is_constant, value))
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_constant, (*value, *value.values())))
    kinds = (bool, int, float, complex, str, bytes, type(None), torch.dtype)
    return type(value) in kinds and repr(value) not in ("nan", "inf", "-inf")


def definition_of(function: types.FunctionType, name: str) -> ast.FunctionDef:
    """The definition of a function, or of a lambda, under a name, without its decorators."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(text)
    except (OSError, TypeError, SyntaxError) as error:
        raise CannotWrite(f"{function.__qualname__} has no source that can be read") from error
    arguments = inspect.getargs(function.__code__)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            node.decorator_list, node.name, node.returns = [], name, None
            for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                each.annotation = None
            return ast.fix_missing_locations(node)
        if isinstance(node, ast.Lambda) and function.__name__ == "<lambda>":
            if [each.arg for each in node.args.args] == arguments.args:
                made = ast.parse(f"def {name}(): return None").body[0]
                assert isinstance(made, ast.FunctionDef)
                made.args, made.body = node.args, [ast.Return(node.body)]
                return ast.fix_missing_locations(made)
    raise CannotWrite(f"the definition of {function.__qualname__} is not in its source")


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def import_line(name: str, value: Any) -> str | None:
    """The line that gives a name this value, where a module that is not the program offers it."""
    if isinstance(value, types.ModuleType):
        return f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or module == "__main__":
        return None
    try:
        there = attrgetter(own)(importlib.import_module(module))
    except (ImportError, ValueError, AttributeError):
        return None
    if there is not value:
        return None
    root, _, rest = own.partition(".")
    line = f"from {module} import {root}" + ("" if own == name else f" as {name}")
    return f"{line}; {name} = {name}.{rest}" if rest else line
