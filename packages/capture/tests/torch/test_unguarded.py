"""Every question that needs no arguments is guarded, or stands in the table of what is not."""

import contextlib
import dataclasses
import inspect
import itertools
import logging
import os
import types

import pytest
import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.builtins.tensors.torch_functions import STATE_QUESTIONS
from flambeau_capture.observe.unguarded import UNGUARDED, name_of, sorted_rules
from flambeau_capture.values.functions.call_rules import RULES, Action, CallRule

#: words of names of functions that ask; the others do something
ASKING = ("is_", "are_", "get", "has_", "_is_", "_get_", "_len_", "flash_", "math_", "mem_")


def asks(fn):
    name = getattr(fn, "__name__", "")
    plain = isinstance(fn, types.FunctionType | types.BuiltinFunctionType)
    if not plain or not (name.startswith(ASKING) or name.endswith(("_count", "_enabled"))):
        return False
    try:
        parameters = inspect.signature(fn).parameters.values()
        return all(p.default is not p.empty or p.kind in (2, 4) for p in parameters)
    except (TypeError, ValueError):
        return fn.__text_signature__ is None


def answers(fn):
    try:
        return type(fn()) in (bool, int, float, str, torch.dtype, type(None))
    except Exception:
        return False


#: what is read in each call has no answer that a guard could hold
ANSWERED = [fn for fn, r in RULES.items() if r.action not in (Action.BREAK, Action.READ)]
QUESTIONS = [fn for fn in ANSWERED if asks(fn) and answers(fn)]


def test_there_are_questions():
    assert len(QUESTIONS) > 15


@pytest.mark.parametrize("question", QUESTIONS, ids=name_of)
def test_question_is_guarded_or_declared(capture, question):
    compiled = capture(lambda x: (x + 1, question()))
    compiled(torch.ones(1))
    guards = compiler_of(compiled).records.guards
    guarded = any(
        guard.kind.name in ("ANSWER", "CALL") and getattr(question, "__name__", "") in str(guard)
        for each in guards
        for guard in each.items
    )
    assert guarded or question in STATE_QUESTIONS or name_of(question) in UNGUARDED or not guards


def test_every_rule_has_a_reason():
    assert len(UNGUARDED) > 15
    assert all(len(rule.reason) > 15 and rule.what for rule in sorted_rules())


# --- questions of arguments -----------------------------------------------------------------------

#: Python's own functions: they compute of arguments, and are tested where they are written
PYTHONS_OWN = {
    None, "builtins", "math", "cmath", "_operator", "operator", "itertools", "collections",
    "collections.abc", "functools", "_functools", "_heapq", "_bisect", "copy", "types", "typing",
    "json", "ast", "re", "_struct", "_abc", "_collections", "posixpath", "posix", "threading",
    "_typing",
}  # fmt: skip


@dataclasses.dataclass
class Point:
    a: int = 1


def function(a, b=2):
    return a


POOL = (
    1, "cpu", "PATH", torch.float32, torch.device("cpu"), Point, Point(), function, torch.ones(2),
    [[torch.ones(2)]], torch.nn.Linear(2, 2), logging.getLogger("asked"), os.environ,
)  # fmt: skip
PLAIN = (bool, int, float, str, tuple, list, dict, torch.dtype, torch.device, type(None))
SAYING = ("debug", "info", "warning", "error", "critical", "log")  # of a logger: they do something


def looks_outside(fn):
    """Whether a function may answer by more than its arguments."""
    own = getattr(fn, "__module__", None) in PYTHONS_OWN
    tensors = getattr(fn, "__module__", None) == "torch._tensor"
    return not (own or tensors or isinstance(fn, type) or fn.__name__ in SAYING)


def answered(fn, count):
    """The first few arguments that it answers plainly."""
    found = []
    for arguments in itertools.product(POOL, repeat=count):
        with contextlib.suppress(Exception, SystemExit):  # whatever it thinks of them
            if isinstance(fn(*arguments), PLAIN):
                found.append(arguments)
        if len(found) == 2:
            break
    return found


def asked_of(capture, fn, arguments):
    """What is guarded beside the arguments, the function and torch's state; None if it broke."""
    compiled = capture(lambda x, *given: (x + 1, fn(*given)))
    compiled(torch.ones(1), *arguments)
    records = compiler_of(compiled).records
    if records.breaks or not records.guards:
        return None
    guards = [guard for each in records.guards for guard in each.items]
    return [one for one in guards if one.kind.name in ("ANSWER", "CALL")]


ASKED_OF = [fn for fn in ANSWERED if looks_outside(fn)]


def test_there_are_questions_of_arguments():
    assert len(ASKED_OF) > 60


@pytest.mark.parametrize("count", [0, 1, 2])
def test_question_of_arguments_is_guarded_or_declared(capture, count):
    """A new one that rests on more than its arguments says why no guard is wanted."""
    for fn in ASKED_OF:
        if fn in STATE_QUESTIONS or name_of(fn) in UNGUARDED:
            continue
        for arguments in answered(fn, count):
            guards = asked_of(capture, fn, arguments)
            assert guards is None or guards or guarded_by_reading(fn), (name_of(fn), arguments)


def guarded_by_reading(fn):
    """Written in Python and interpreted: each thing that it reads is guarded there."""
    rule = RULES.get(fn)
    inline = rule is not None and rule.action is Action.INLINE
    return inline or fn in (os.environ.__getitem__, os._Environ.__getitem__)


def test_a_question_that_nobody_guards_is_found(capture, monkeypatch):
    state = {"answer": 1}

    def question(name):
        return state["answer"]

    rule = CallRule(Action.ANSWER, handler=lambda tx, args, kwargs: tx.wrap_new(state["answer"]))
    monkeypatch.setitem(RULES, question, rule)
    assert asked_of(capture, question, ("cpu",)) == []
    assert looks_outside(question) and name_of(question) not in UNGUARDED
