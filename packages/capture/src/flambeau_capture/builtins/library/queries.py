"""Functions that say something of the process, which guards query again at each call.

In: calls on known arguments. Out: constants, each with a guard that puts the same query.
Invariant: a function is listed here if it changes nothing, costs little, and its answer is a
literal or raises; what has changed since the frame began is an answer that eager may give as well.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from abc import get_cache_token
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.guards.equality import same
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, objects_of
from flambeau_capture.values.constant import LITERALS
from flambeau_capture.values.functions.call_rules import (
    RULES,
    Action,
    CallRule,
    describe_call,
    knowing,
)


@dataclass(frozen=True)
class _AnswersTheSame:
    """A guard's question: a function's answer is as it was, of the same class."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Any

    def __call__(self, fn: Callable[..., Any]) -> bool:
        try:
            return same(fn(*self.args, **self.kwargs), self.answer)
        except Exception:
            return False


def _query(fn: Any, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    with knowing(fn, args):
        plain, named = objects_of(args, kwargs)
    if not all(type(each) in LITERALS for each in (*plain, *named.values())):
        raise Break("FB0005", f"call_function {describe_call(fn, args)}")
    try:
        answer = fn(*plain, **named)
    except Exception:  # which may be another at the next call
        raise Break("FB0005", f"call_function {describe_call(fn, args)}") from None
    if type(answer) not in LITERALS and not _is_plain_tuple(answer):
        raise Break("FB0005", f"call_function {describe_call(fn, args)}")
    question = _AnswersTheSame(tuple(plain), named, answer)
    tx.guard(ConstantSource(fn, fn.__name__), "CALL", question, f"answers {answer!r}")
    return tx.wrap_new(answer)


def _is_plain_tuple(answer: Any) -> bool:
    return type(answer) is tuple and all(type(item) in LITERALS for item in answer)


_FUNCTIONS: tuple[Any, ...] = (
    os.getpid, os.getppid, os.getcwd, os.cpu_count, os.path.exists, os.path.isfile, os.path.isdir,
    os.path.getsize, os.path.realpath, os.path.abspath,
    get_cache_token, logging.getLevelName, threading.get_ident,
)  # fmt: skip
for _fn in _FUNCTIONS:
    RULES[_fn] = CallRule(Action.ANSWER, handler=functools.partial(_query, _fn))
