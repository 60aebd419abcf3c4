"""Every question that needs no arguments is guarded, or stands in the table of what is not."""

import inspect
import types

import pytest
import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.builtins.torch_functions import STATE_QUESTIONS
from flambeau_capture.unguarded import UNGUARDED, name_of, sorted_rules
from flambeau_capture.values.callables import HANDLERS

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


QUESTIONS = [fn for fn in list(HANDLERS) if asks(fn) and answers(fn)]


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
