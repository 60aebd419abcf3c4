"""Python functions that stand for those of the library which are written in C.

In: the original, its Python equivalent. Out: a handler. Invariant: what the original refuses when
it is called is refused in its words, before anything is iterated; what leaves the frame before it
is used is what the original makes.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from flambeau_capture.values.argument_errors import check_call
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.functions.callables import Action, handles
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.made_by import TEE, MadeBy, SharedItems
from flambeau_capture.values.iterators.generators import GeneratorValue


def stand_in(original: Any, python: Any) -> None:
    """Calls of the original are interpreted as calls of the Python function."""

    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        check_call(tx, original, args, kwargs)
        made = tx.call_python(python, args, kwargs)
        if original is itertools.tee:
            for branch in made.parts():  # type: ignore[attr-defined]
                branch.made_by = SharedItems(TEE, (), {})
        if isinstance(made, GeneratorValue | FunctionValue):
            made.made_by = MadeBy(original, tuple(args), dict(kwargs))
        return made

    told_apart = original in (functools.cmp_to_key, itertools.tee)  # what they make
    action = Action.ANSWER if told_apart else Action.POLYFILL
    handles(original, action=action, python=None if told_apart else python)(handler)
