"""Call sequences that stale code answers, and the shortest function with which it does.

In: a function, calls. Out: a `Difference`, or None; a shorter text and calls. Invariant: a call
counts as answered by stale code only where the same call is right when it is the first one: a guard
is missing, nothing else; every text that is kept was itself seen to fail.
"""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import flambeau_capture
import torch
from flambeau_capture import CaptureWarning

from flambeau.repro.function_text import FunctionText, is_constant
from flambeau.testing.comparison import Difference, Observed, difference
from flambeau.testing.isolated_run import copied, observe

Function = Callable[..., Any]
State = Mapping[str, Any]


@dataclass(frozen=True)
class RecordedCall:
    """One call. state: plain values that the function finds around it at that moment, by place:
    `NAME`, or `NAME.attribute.attribute` of a module that it reads or is given (`0` is the first
    argument)."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    state: State = field(default_factory=dict)

    def copy(self) -> RecordedCall:
        """With copies of its tensors; modules stay the same objects."""
        args, kwargs = copied((self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)


def state_of(text: FunctionText, args: Sequence[Any]) -> dict[str, Any]:
    """The plain values that a function finds now, by place."""
    found = dict(text.constants)
    for name, module in _modules(text.held, args).items():
        for path, inner in module.named_modules():
            for key, value in vars(inner).items():
                if is_constant(value) and not key.startswith("_"):
                    found[".".join(filter(None, (name, path, key)))] = value
    return found


def set_state(function: Function, args: Sequence[Any], state: State) -> None:
    """Put plain values where the function finds them."""
    scope = function.__globals__  # type: ignore[attr-defined]
    modules = _modules(scope, args)
    for place, value in state.items():
        name, dot, path = place.partition(".")
        if not dot:
            scope[name] = value
            continue
        inner, _, key = path.rpartition(".")
        owner = modules[name].get_submodule(inner)
        if key not in vars(owner) or vars(owner)[key] != value:
            setattr(owner, key, value)


def _modules(held: Mapping[str, Any], args: Sequence[Any]) -> dict[str, torch.nn.Module]:
    named = {**held, **{str(place): value for place, value in enumerate(args)}}
    return {name: each for name, each in named.items() if isinstance(each, torch.nn.Module)}


def stale(function: Function, calls: Sequence[RecordedCall]) -> Difference | None:
    """How the last call differs after the others; None where it does not, or does so alone too."""
    last = calls[-1]
    set_state(function, last.args, last.state)
    expected = _observed(function, last)
    if expected.error is not None:
        return None
    found = difference(expected, _after(function, calls))
    if found is None or difference(expected, _after(function, calls[-1:])) is not None:
        return None
    return found


def _after(function: Function, calls: Sequence[RecordedCall]) -> Observed:
    """What the last of some calls gives, compiled from nothing."""
    compiled = flambeau_capture.optimize("eager")(function)
    got = Observed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaptureWarning)
        for call in calls:
            set_state(function, call.args, call.state)
            got = _observed(compiled, call)
    return got


def _observed(function: Function, call: RecordedCall) -> Observed:
    return observe(function, call.args, dict(call.kwargs), backward=False)


def two_calls(
    function: Function, calls: Sequence[RecordedCall]
) -> tuple[RecordedCall, RecordedCall] | None:
    """Of some calls, one that compiles and the last, which it misleads."""
    for call in reversed(calls[:-1]):
        if stale(function, [call, calls[-1]]) is not None:
            return call, calls[-1]
    return None


MOST_TESTS = 300
"""Functions that are tried at most."""


@dataclass
class ShortFunction:
    """A function and its calls, what goes wrong, and how many texts were tried for it."""

    text: FunctionText
    calls: tuple[RecordedCall, ...]
    difference: Difference
    tests: int = 0


def shorten(text: FunctionText, calls: Sequence[RecordedCall]) -> ShortFunction | None:
    """The shortest function found that fails; None where the text does not fail."""
    found = _tried(text, calls)
    if found is None:
        return None
    state = ShortFunction(text, tuple(calls), found, 1)
    progress = True
    while progress and state.tests < MOST_TESTS:
        progress = False
        for move in (_fewer_statements, _smaller_expressions, _fewer_variables):
            place = 0
            while state.tests < MOST_TESTS:
                made = move(state.text.definition, place)
                if made is None:
                    break
                if _taken(state, replace(state.text, definition=made), state.calls):
                    progress = True
                else:
                    place += 1
        for name in [each.arg for each in state.text.definition.args.args]:
            fewer = _without(state, name)
            if fewer is not None and _taken(state, *fewer):
                progress = True
    _forget_what_is_not_read(state)
    return state


def _tried(text: FunctionText, calls: Sequence[RecordedCall]) -> Difference | None:
    try:
        return stale(text.function(), calls)
    except Exception:  # a text without what it needs is no candidate, however it says so
        return None


def _taken(state: ShortFunction, text: FunctionText, calls: Sequence[RecordedCall]) -> bool:
    state.tests += 1
    found = _tried(text, calls)
    if found is None:
        return False
    state.text, state.calls, state.difference = text, tuple(calls), found
    return True


def _fewer_statements(definition: ast.FunctionDef, place: int) -> ast.FunctionDef | None:
    """The definition after its n-th change of statements, from the last one up."""
    made = copy.deepcopy(definition)
    for number, (body, at, instead) in enumerate(_statement_moves(made)):
        if number == place:
            body[at : at + 1] = instead
            if not body:
                body.append(ast.Pass())
            return ast.fix_missing_locations(made)
    return None


def _statement_moves(
    definition: ast.FunctionDef,
) -> Iterator[tuple[list[ast.stmt], int, list[ast.stmt]]]:
    bodies = [
        body
        for node in ast.walk(definition)
        for name in ("body", "orelse", "finalbody")
        if isinstance(body := getattr(node, name, None), list)
    ]
    for body in bodies:
        for at in reversed(range(len(body))):
            if isinstance(body[at], ast.Pass) and len(body) == 1:
                continue
            yield body, at, []
            inner = getattr(body[at], "body", None)
            if isinstance(inner, list) and not isinstance(body[at], ast.FunctionDef):
                yield body, at, inner


def _smaller_expressions(definition: ast.FunctionDef, place: int) -> ast.FunctionDef | None:
    """The definition with a part of an expression in place of the whole: its n-th such change."""
    made = copy.deepcopy(definition)
    changes = (
        (owner, name, at, part)
        for owner in ast.walk(made)
        for name, at, whole in _expressions(owner)
        for part in _parts(whole)
    )
    for number, (owner, name, at, part) in enumerate(changes):
        if number == place:
            if at is None:
                setattr(owner, name, part)
            else:
                getattr(owner, name)[at] = part
            return ast.fix_missing_locations(made)
    return None


def _expressions(owner: ast.AST) -> Iterator[tuple[str, int | None, ast.expr]]:
    for name, value in ast.iter_fields(owner):
        if isinstance(owner, ast.arguments) or name in ("targets", "target", "func"):
            continue
        if isinstance(value, ast.expr):
            yield name, None, value
        for at, each in enumerate(value if isinstance(value, list) else ()):
            if isinstance(each, ast.expr):
                yield name, at, each


def _parts(whole: ast.expr) -> Iterator[ast.expr]:
    if isinstance(whole, ast.Call) and isinstance(whole.func, ast.Attribute):
        yield whole.func.value
    for child in ast.iter_child_nodes(whole):
        if isinstance(child, ast.expr) and child is not getattr(whole, "func", None):
            yield child


def _fewer_variables(definition: ast.FunctionDef, place: int) -> ast.FunctionDef | None:
    """The definition with a value in place of the n-th variable that is set and read once."""
    made = copy.deepcopy(definition)
    names = [node for node in ast.walk(made) if isinstance(node, ast.Name)]
    once = [
        statement
        for statement in made.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and sum(name.id == statement.targets[0].id for name in names) == 2
    ]
    if place >= len(once):
        return None
    gone = once[place]
    assert isinstance(gone.targets[0], ast.Name)
    made.body.remove(gone)
    _Instead(gone.targets[0].id, gone.value).visit(made)
    return ast.fix_missing_locations(made)


class _Instead(ast.NodeTransformer):
    """An expression in place of a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.value if node.id == self.name else node


def _without(
    state: ShortFunction, name: str
) -> tuple[FunctionText, tuple[RecordedCall, ...]] | None:
    """Without an argument that nothing reads; None where something does, or it has a default."""
    made = copy.deepcopy(state.text.definition)
    names = [each.arg for each in made.args.args]
    at = names.index(name)
    read = any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(made))
    if read or made.args.defaults:
        return None
    calls = []
    for call in state.calls:
        given = {k: v for k, v in call.kwargs.items() if k != name}
        if at >= len(call.args) and name not in call.kwargs:
            return None
        args = (*call.args[:at], *call.args[at + 1 :])
        moved = {_renumbered(place, at): v for place, v in call.state.items()}
        state_ = {place: value for place, value in moved.items() if place}
        calls.append(replace(call, args=args, kwargs=given, state=state_))
    del made.args.args[at]
    return replace(state.text, definition=made), tuple(calls)


def _renumbered(place: str, gone: int) -> str:
    """A place in the state once an argument is gone; empty for a place in that argument."""
    name, dot, rest = place.partition(".")
    if not name.isdecimal() or int(name) < gone:
        return place
    return "" if int(name) == gone else f"{int(name) - 1}{dot}{rest}"


def _forget_what_is_not_read(state: ShortFunction) -> None:
    """Leave out names that the text does not read any more, and state that does not matter."""
    whole = "\n".join((*state.text.helpers, state.text.text))
    read = {node.id for node in ast.walk(ast.parse(whole)) if isinstance(node, ast.Name)}
    helpers = tuple(each for each in state.text.helpers if each[4:].partition("(")[0] in read)
    text = replace(
        state.text,
        helpers=helpers,
        imports=tuple(line for line in state.text.imports if line.split()[-1] in read | {"torch"}),
        constants={k: v for k, v in state.text.constants.items() if k in read},
        held={k: v for k, v in state.text.held.items() if k in read},
    )
    places = {place for call in state.calls for place in call.state}
    same = {
        place for place in places if len({repr(call.state.get(place)) for call in state.calls}) == 1
    }
    calls = [
        replace(call, state={k: v for k, v in call.state.items() if k not in same})
        for call in state.calls
    ]
    _taken(state, text, calls)
