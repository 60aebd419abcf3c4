"""Programs by the chapters of Python's references, written as a grammar.

In: chance. Out: functions that define what a chapter is about, before the call or in it, and use it
around tensors. Invariant: the tables of the chapters are the whole of it; a form says what is
defined and what asks for it, never what comes of it.
"""

from __future__ import annotations

import ast
import random
from textwrap import indent

from integration_tests.campaign.families.reference import (
    class_statements,
    control_flow,
    expressions,
    functions,
    generators,
    library_objects,
    library_values,
)
from integration_tests.campaign.families.reference.grammar import Form, expanded
from integration_tests.campaign.program import Call, Program

SETUP = """import abc, base64, bisect, collections, contextlib, contextvars, copy, dataclasses
import datetime, decimal, enum, fractions, functools, hashlib, heapq, inspect, itertools, json, math
import numbers, operator, pickle, random, re, statistics, string, struct, textwrap, types, typing
import uuid, weakref
class Own(Exception):
    pass
def text_of(error):
    return (type(error).__name__, str(error), type(error.__cause__).__name__)
x = t = u = make((3,), torch.float32, 5, 'whole')
n, xs = 3, [1, 2, 3]"""
#: by chapter of the language reference, then of the library reference: what it has
CHAPTERS: dict[str, tuple[Form, ...]] = {
    **class_statements.CHAPTERS,
    **control_flow.CHAPTERS,
    **expressions.CHAPTERS,
    **functions.CHAPTERS,
    **generators.CHAPTERS,
    **library_objects.CHAPTERS,
    **library_values.CHAPTERS,
}
TENSOR_WORK = ("t = t + len(R)", "t = t * 2", "u = u + t", "t = torch.where(u > 0, t, u)")


def used(chance: random.Random, text: str) -> str:
    """A use as statements: an expression's value is a result, as what it raises mostly is."""
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        pass
    else:
        kept = chance.choice(("R.append({})", "R.append({})", "r = {}\nR.append(r)"))
        text = kept.format(text)
    if chance.random() < 0.85:
        caught = "except Exception as error:\n    R.append(text_of(error))"
        return f"try:\n{indent(text, '    ')}\n{caught}"
    return text


def draw(chance: random.Random) -> Program:
    """One or two forms of a chapter or two, each with some of its uses; two or three calls."""
    setup, body = [SETUP], ["R = []", "t, u = x * 2, x + 1"]
    for _ in range(chance.choice((1, 1, 2))):
        form = chance.choice(CHAPTERS[chance.choice([*CHAPTERS])])
        made = expanded(chance, form.made)
        if made:
            (body if form.inside or chance.random() < 0.6 else setup).append(made)
        for _ in range(chance.randrange(2, 2 + min(4, len(form.uses)))):
            body.append(used(chance, expanded(chance, chance.choice(form.uses))))
            if chance.random() < 0.25:
                body.append(chance.choice(TENSOR_WORK))
    body.append("t = t + 1")
    calls = []
    for _ in range(chance.choice((2, 2, 3))):
        shape = chance.choice(("(3,)", "(3,)", "(3,)", "(4,)"))
        calls.append(
            Call(
                {
                    "x": f"make({shape}, torch.float32, {chance.randrange(20)}, 'whole')",
                    "n": str(chance.choice((2, 2, 3, 5))),
                    "xs": chance.choice(("[1, 2, 3]", "[1, 2, 3]", "[5, 4]")),
                }
            )
        )
    return Program("reference", 0, tuple(body), ("t", "u", "R"), tuple(calls), tuple(setup))
