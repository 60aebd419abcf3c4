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
from functools import partial
from itertools import islice
from operator import setitem
from typing import Any, NamedTuple

import flambeau_capture
import torch
from flambeau_capture import CaptureWarning

from flambeau.repro.delta import Search
from flambeau.repro.function_text import FunctionText, is_constant
from flambeau.testing.comparison import Difference, Observed, copied, difference, observe

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


MOST_TESTS = 300
"""Functions that are tried at most."""


@dataclass(frozen=True)
class ShortFunction:
    """A function and its calls, and what goes wrong."""

    text: FunctionText
    calls: tuple[RecordedCall, ...]
    difference: Difference


class Candidate(NamedTuple):
    """A function to try, and calls of it."""

    text: FunctionText
    calls: Sequence[RecordedCall]


FunctionSearch = Search[Candidate, Difference]


def shorten(text: FunctionText, calls: Sequence[RecordedCall]) -> ShortFunction | None:
    """The shortest function found that fails; None where the text does not fail."""
    found = _tried(whole := Candidate(text, calls))
    if found is None:
        return None
    search = FunctionSearch(whole, found, _tried, MOST_TESTS)
    edits = (_fewer_statements, _smaller_expressions, _fewer_variables)
    search.run([*(partial(_edited, edits=each) for each in edits), _fewer_arguments])
    search.most += 1
    search.takes(_without_what_is_not_read(search.best))
    return ShortFunction(search.best.text, tuple(search.best.calls), search.found)


def _tried(candidate: Candidate) -> Difference | None:
    try:
        return stale(candidate.text.function(), candidate.calls)
    except Exception:  # a text without what it needs is no candidate, however it says so
        return None


Edits = Callable[[ast.FunctionDef], Iterator[Callable[[], object]]]


def _edited(search: FunctionSearch, edits: Edits) -> None:
    """Make all changes that may be made to a definition; those are kept that leave it failing."""
    place = 0
    while True:
        text, calls = search.best
        made = copy.deepcopy(text.definition)
        change = next(islice(edits(made), place, None), None)
        if change is None:
            return
        change()
        definition = ast.fix_missing_locations(made)
        if not search.takes(Candidate(replace(text, definition=definition), calls)):
            place += 1


def _fewer_statements(definition: ast.FunctionDef) -> Iterator[Callable[[], object]]:
    """Leave out a statement, or all of it but its body, from the last one up."""
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
            yield partial(setitem, body, slice(at, at + 1), [] if len(body) > 1 else [ast.Pass()])
            inner = getattr(body[at], "body", None)
            if isinstance(inner, list) and not isinstance(body[at], ast.FunctionDef):
                yield partial(setitem, body, slice(at, at + 1), inner)


def _smaller_expressions(definition: ast.FunctionDef) -> Iterator[Callable[[], object]]:
    """Put a part of an expression in place of the whole."""
    for owner in ast.walk(definition):
        for fields, key, whole in _expressions(owner):
            for part in _parts(whole):
                yield partial(setitem, fields, key, part)


def _expressions(owner: ast.AST) -> Iterator[tuple[Any, Any, ast.expr]]:
    """The expressions inside a node, each with the dict or list that has it, and its key there."""
    for name, value in ast.iter_fields(owner):
        if isinstance(owner, ast.arguments) or name in ("targets", "target", "func"):
            continue
        listed = isinstance(value, list)
        for key, each in enumerate(value) if listed else [(name, value)]:
            if isinstance(each, ast.expr):
                yield value if listed else vars(owner), key, each


def _parts(whole: ast.expr) -> Iterator[ast.expr]:
    if isinstance(whole, ast.Call) and isinstance(whole.func, ast.Attribute):
        yield whole.func.value
    for child in ast.iter_child_nodes(whole):
        if isinstance(child, ast.expr) and child is not getattr(whole, "func", None):
            yield child


def _fewer_variables(definition: ast.FunctionDef) -> Iterator[Callable[[], object]]:
    """Put a value in place of a variable that is set and read once."""
    names = [node.id for node in ast.walk(definition) if isinstance(node, ast.Name)]
    for statement in definition.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if names.count(name) == 2:
                yield partial(_Inlining(name, statement).visit, definition)


class _Inlining(ast.NodeTransformer):
    """What a statement assigns in place of a name, and nothing in place of the statement."""

    def __init__(self, name: str, statement: ast.Assign) -> None:
        self.name, self.statement = name, statement

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.statement.value if node.id == self.name else node

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if node is self.statement else self.generic_visit(node)


def _fewer_arguments(search: FunctionSearch) -> None:
    """Leave out arguments that nothing reads, where none has a default."""
    for name in [each.arg for each in search.best.text.definition.args.args]:
        text, calls = search.best
        made = copy.deepcopy(text.definition)
        at = [each.arg for each in made.args.args].index(name)
        read = any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(made))
        given = all(at < len(call.args) or name in call.kwargs for call in calls)
        if given and not read and not made.args.defaults:
            del made.args.args[at]
            fewer = [_without(call, at, name) for call in calls]
            search.takes(Candidate(replace(text, definition=made), fewer))


def _without(call: RecordedCall, at: int, name: str) -> RecordedCall:
    """The call without one argument, and without state of it."""
    state = {_renumbered(place, at): value for place, value in call.state.items()}
    return RecordedCall(
        (*call.args[:at], *call.args[at + 1 :]),
        {key: value for key, value in call.kwargs.items() if key != name},
        {place: value for place, value in state.items() if place},
    )


def _renumbered(place: str, gone: int) -> str:
    """A place in the state once an argument is gone; empty for a place in that argument."""
    name, dot, rest = place.partition(".")
    if not name.isdecimal() or int(name) < gone:
        return place
    return "" if int(name) == gone else f"{int(name) - 1}{dot}{rest}"


def _without_what_is_not_read(whole: Candidate) -> Candidate:
    """Leave out names that the text does not read any more, and state that does not matter."""
    text, calls = whole
    tree = ast.parse("\n".join((*text.helpers, text.text)))
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    left = replace(
        text,
        helpers=tuple(each for each in text.helpers if each[4:].partition("(")[0] in read),
        imports=tuple(line for line in text.imports if line.split()[-1] in read | {"torch"}),
        constants={k: v for k, v in text.constants.items() if k in read},
        held={k: v for k, v in text.held.items() if k in read},
    )
    found: dict[str, set[str]] = {place: set() for call in calls for place in call.state}
    for place, values in found.items():
        values.update(repr(call.state.get(place)) for call in calls)
    return Candidate(
        left,
        [
            replace(call, state={k: v for k, v in call.state.items() if len(found[k]) > 1})
            for call in calls
        ],
    )
