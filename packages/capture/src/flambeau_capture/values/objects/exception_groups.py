"""Exception groups as `except*` and their methods split them.

In: an exception, a condition. Out: the group of those that it holds for, and of the others.
Invariant: what a part of a group says of where and why it was raised is what the whole says; PEP
654 has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import ExceptionValue

Condition = Callable[[Value], bool]
_ORIGINS = ("__cause__", "__context__", "__suppress_context__")


def is_group(error: Value) -> bool:
    return issubclass(error.cls, BaseExceptionGroup)


def split(tx: Tracer, error: Value, holds: Condition) -> tuple[Value | None, Value | None]:
    """What of a group a condition holds for, and what does not."""
    if holds(error):
        return error, None
    if not is_group(error):
        return None, error
    parts = [split(tx, each, holds) for each in _parts(tx, error)]
    matched, rest = ([one[side] for one in parts if one[side] is not None] for side in (0, 1))
    return derived(tx, error, matched), derived(tx, error, rest)


def _parts(tx: Tracer, group: Value) -> Sequence[Value]:
    found = tx.get_attr(group, "exceptions")
    assert isinstance(found, TupleValue)
    return found.parts()


def derived(tx: Tracer, group: Value, parts: Sequence[Value | None]) -> Value | None:
    """The group of some of another's exceptions; None for none."""
    if not parts:
        return None
    given = ListValue([part for part in parts if part is not None])
    made = derive(tx, group, given)
    assert isinstance(group, ExceptionValue)
    if isinstance(made, ExceptionValue):
        made.raised, made.part_of = group.raised, group.part_of or group
        made.step, made.lines = group.step, group.lines
        made.fields |= {name: group.fields[name] for name in _ORIGINS if name in group.fields}
        notes = group.instance_get(tx, "__notes__")
        if isinstance(notes, ListValue):
            made.write(tx, "__notes__", ListValue(notes.parts()))
    return made


def derive(tx: Tracer, group: Value, parts: Value) -> Value:
    """`group.derive(parts)`."""
    found = find_in_class(group.cls, "derive")
    if found is not None and found[0] is not BaseExceptionGroup:
        return tx.call(tx.get_attr(group, "derive"), [parts], {})
    return grouped(tx, tx.get_attr(group, "message"), parts)


def grouped(tx: Tracer, message: Value, parts: Value) -> Value:
    return tx.instantiate(tx.wrap_new(BaseExceptionGroup), [message, parts], {})


def matched(tx: Tracer, error: Value, holds: Condition) -> tuple[Value | None, Value | None]:
    """What an `except*` clause takes of an exception, and what it leaves."""
    if not is_group(error) and holds(error):
        made = grouped(tx, Constant(""), TupleValue([error]))
        return made, None
    return split(tx, error, holds)


def left_to_raise(tx: Tracer, whole: Value, errors: Sequence[Value]) -> Value:
    """What leaves a `try` with `except*` clauses: what they have raised, and what of the whole none
    has taken, or one has raised again."""
    errors = [error for error in errors if not is_none(error)]
    if not is_group(whole):
        return errors[0] if errors else Constant(None)
    again = [error for error in errors if _is_part(error, whole)]
    raised = [error for error in errors if not _is_part(error, whole)]
    leaves = {id(leaf) for error in again for leaf in _leaves(tx, error)}
    kept, _ = split(tx, whole, lambda error: not is_group(error) and id(error) in leaves)
    if kept is not None:
        if not raised:
            return kept
        raised.append(kept)
    if len(raised) < 2:
        return raised[0] if raised else Constant(None)
    return grouped(tx, Constant(""), ListValue(raised))


def _is_part(error: Value, whole: Value) -> bool:
    """Whether an exception comes of another by splits alone: nothing has raised it anew."""
    if error is whole:
        return True
    return isinstance(error, ExceptionValue) and error.part_of is whole and not error.raised_anew


def _leaves(tx: Tracer, error: Value) -> list[Value]:
    if not is_group(error):
        return [error]
    return [leaf for part in _parts(tx, error) for leaf in _leaves(tx, part)]


def _condition(tx: Tracer, given: Value) -> Condition:
    """The condition of `split` and `subgroup`: classes, or a function."""
    parts = given.parts() if isinstance(given, TupleValue) else [given]
    kinds = tuple(part.python_class for part in parts if isinstance(part, ClassValue))
    if len(kinds) == len(parts) and all(issubclass(kind, BaseException) for kind in kinds):
        return lambda error: issubclass(error.cls, kinds)
    if not isinstance(given, FunctionValue):
        raise Break("FB0009", f"a group split by {given.describe()}")
    return lambda error: tx.call(given, [error], {}).truth(tx)


def _split(tx: Tracer, group: Value, condition: Value) -> Value:
    sides = split(tx, group, _condition(tx, condition))
    return TupleValue([Constant(None) if side is None else side for side in sides])


def _subgroup(tx: Tracer, group: Value, condition: Value) -> Value:
    return split(tx, group, _condition(tx, condition))[0] or Constant(None)


def _derive(tx: Tracer, group: Value, parts: Value) -> Value:
    return grouped(tx, tx.get_attr(group, "message"), parts)


GROUP_METHODS: dict[str, Callable[..., Value]] = {
    "split": _split, "subgroup": _subgroup, "derive": _derive,
}  # fmt: skip
"""What groups of exceptions have."""
