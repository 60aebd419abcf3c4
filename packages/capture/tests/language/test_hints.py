"""Every break reason: a program that breaks for it, and the edit of its hint, with a graph fewer.

`EDITS` holds the pairs; `SPECIAL` the reasons that have a test of their own, or no edit.
"""

import contextlib
import logging
import math
import re
import threading
import warnings

import numpy as np
import pytest
import torch
from flambeau_capture import graph_break, optimize
from flambeau_capture.breaks import REASONS, Unsupported
from flambeau_capture.observe.explanation import explain
from hint_operators import LIBRARY, doubled, twice, wrongly
from torch import nn

EDITS = {}
SPECIAL = {"FB0010", "FB0011", "FB0018", "FB0022", "FB0025", "FB0026", "FB0027", "FB0028", "FB0029"}
SPECIAL |= {"FB0008"}  # no function of these Pythons has such an instruction
LOG = logging.getLogger("flambeau.tests.hints")
ITEMS = {"f": (n for n in ())}
MANY = torch.arange(20.0)  # too many for a number of them to be read before the graph


def pair(id):
    def register(make):
        EDITS[id] = make()
        return make

    return register


@pair("FB0001")
def _():
    def broken(t):
        t = t + MANY.sum()
        if t.sum() > 0:
            return t * 2
        return t * 3

    def edited(t):
        t = t + MANY.sum()
        return torch.where(t.sum() > 0, t * 2, t * 3)

    return broken, edited


@pair("FB0002")
def _():
    def broken(t):
        return (t + 1) * math.sin(float((MANY * 2).sum()))

    def edited(t):
        return (t + 1) * (MANY * 2).sum().sin()

    return broken, edited


@pair("FB0003")
def _():
    def broken(t):
        t = t + 1
        return t * len(str(t))

    def edited(t):
        t = t + 1
        return t * t.shape[0]

    return broken, edited


@pair("FB0004")
def _():
    def broken(t):
        t = t + 1
        return t[np.where((t > 2).numpy())[0].tolist()].sum() + 1

    def edited(t):
        t = t + 1
        return torch.where(t > 2, t, 0.0).sum() + 1

    return broken, edited


@pair("FB0005")
def _():
    def broken(t):
        t = t + 1
        return t * eval("3")

    factor = eval("3")

    def edited(t):
        t = t + 1
        return t * factor

    return broken, edited


@pair("FB0006")
def _():
    def broken(t):
        t = t + 1
        graph_break()
        return t * 2

    def edited(t):
        t = t + 1
        return t * 2

    return broken, edited


@pair("FB0007")
def _():
    leaf = torch.ones(3, requires_grad=True)

    def broken(t):
        loss = (leaf * t).sum()
        loss.backward(create_graph=True)
        return loss.detach() + 1

    def edited(t):
        loss = (leaf * t).sum()
        return loss.detach() + 1

    return broken, edited


class Hashed:
    """By its address, as objects are."""

    name = "ab"


@pair("FB0009")
def _():
    def broken(t):
        t = t + 1
        return t * len({Hashed(), Hashed()}.pop().name)

    def edited(t):
        t = t + 1
        return t * len([Hashed(), Hashed()].pop().name)

    return broken, edited


@pair("FB0012")
def _():
    def broken(t):
        t = t + 1
        return t * torch.Tensor(torch.tensor([1.0, 2.0, 3.0]))

    def edited(t):
        t = t + 1
        return t * torch.tensor([1.0, 2.0, 3.0])

    return broken, edited


OFF_CONTEXT = torch.autocast("cpu", enabled=False)


@pair("FB0013")
def _():
    def broken(t):
        t = t + 1
        with torch.autocast("cpu", enabled=False), OFF_CONTEXT, OFF_CONTEXT:
            t = t * 2
        return t

    def edited(t):
        t = t + 1
        with torch.autocast("cpu", enabled=False):
            t = t * 2
        return t

    return broken, edited


@pair("FB0014")
def _():
    def broken(t):
        t = t + 1
        for n in ITEMS["f"]:
            t = t * n
        return t * 2

    def edited(t):
        t = t + 1
        for n in []:
            t = t * n
        return t * 2

    return broken, edited


@pair("FB0015")
def _():
    generator = torch.Generator()

    def broken(t):
        t = t + 1
        return t + torch.bernoulli(t.sigmoid(), generator=generator)

    def edited(t):
        t = t + 1
        return t + torch.rand(3)

    return broken, edited


@pair("FB0016")
def _():
    def broken(t):
        a = (t + 1).reshape(3, 1)
        a.as_strided_((1, 3), (3, 1))
        return a * 2

    def edited(t):
        a = (t + 1).reshape(3, 1)
        a = a.as_strided((1, 3), (3, 1))
        return a * 2

    return broken, edited


@pair("FB0017")
def _():
    def broken(t):
        t = t + 1
        return t * len(threading.enumerate())

    count = len(threading.enumerate())

    def edited(t):
        t = t + 1
        return t * count

    return broken, edited


@pair("FB0019")
def _():
    class Counted:
        pass

    def broken(t):
        t = t + 1
        Counted.calls = property(lambda self: 3)  # instances would be asked in another way
        return t * 2

    def edited(t):
        t = t + 1
        return t * 2, 3

    return broken, edited


class Made:
    def double(self, t):
        return t * 2


@pair("FB0020")
def _():
    def broken(t):
        t = t + 1

        class Inside:
            @classmethod
            def __subclasshook__(cls, other):
                return True

            def double(self, t):
                return t * 2

        return Inside().double(t)

    def edited(t):
        t = t + 1
        return Made().double(t)

    return broken, edited


@pair("FB0021")
def _():
    async def later():
        return 1

    def broken(t):
        t = t + 1
        later()  # of which Python warns: it is never awaited
        return t * 2

    def edited(t):
        t = t + 1
        with contextlib.suppress(StopIteration):
            later().send(None)
        return t * 2

    return broken, edited


@pair("FB0023")
def _():
    def broken(t):
        t = t + 1
        LOG.debug("%s", t)
        return t * 2

    def edited(t):
        t = t + 1
        LOG.debug("%s", t.shape)
        return t * 2

    return broken, edited


@pair("FB0024")
def _():
    def broken(t):
        t = t + 1
        torch.manual_seed(0)
        return t * 2

    def edited(t):
        t = t + 1
        return t * 2

    return broken, edited


def reasons(fn):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = explain(fn, torch.arange(3.0) + 1)
    breaks = [report.reason.id for report in found.break_reasons]
    return breaks or re.findall(r"\bFB\d{4}\b", str(found.frames)), len(found.graphs)


@pair("FB0030")
def _():
    def broken(t):
        return twice(t + 1).sin()

    def edited(t):
        return doubled(t + 1).sin()

    return broken, edited


@pair("FB0031")
def _():
    def broken(t):
        return wrongly(t + 1).sin()

    def edited(t):
        return doubled(t + 1).sin()

    return broken, edited


def test_an_operator_without_a_fake_is_named_in_the_hint():
    for operator, name in ((twice, "twice"), (torch.ops.flambeau_hints.thrice, "thrice")):
        compiled = optimize("eager", nopython=True)(lambda t, call=operator: call(t + 1).sin())
        with pytest.raises(Unsupported, match=f"register_fake.'flambeau_hints::{name}'") as raised:
            compiled(torch.ones(3))
        assert raised.value.report.reason.id == "FB0030"
    torch.library.register_fake("flambeau_hints::thrice", torch.empty_like, lib=LIBRARY)
    compiled = optimize("eager", nopython=True)(lambda t: torch.ops.flambeau_hints.thrice(t + 1))
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 6.0))


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("id", sorted(EDITS))
def test_the_edit_removes_the_break(id):
    broken, edited = EDITS[id]
    before, graphs = reasons(broken)
    after, fewer = reasons(edited)
    assert id in before
    assert after == [] and (fewer < graphs or not graphs)  # none: the frame was left to Python


def test_every_reason_is_here_or_says_that_no_edit_helps():
    assert set(EDITS) | SPECIAL == set(REASONS)
    for id in ("FB0010", "FB0011"):
        assert REASONS[id].hint.startswith("nothing")
    for reason in REASONS.values():
        assert reason.hint and re.fullmatch(r"FB\d{4}", reason.id)


def test_a_recursion_becomes_a_loop():
    def deep(t, n):
        return t if n == 0 else deep(t + 1, n - 1)

    def loop(t, n):
        for _ in range(n):
            t = t + 1
        return t

    assert "FB0018" in reasons(lambda t: deep(t, 400))[0]
    assert reasons(lambda t: loop(t, 400)) == ([], 1)


def test_a_loop_without_tensors_is_left_outside():
    def body(t):
        return t + 1

    def broken(t):
        t = t + 1
        total = 0
        for n in range(10**6):
            total += n % 3
        return t + total

    assert "FB0022" in reasons(broken)[0]
    assert reasons(body) == ([], 1)


def test_a_mapped_function_returns_what_it_would_write():
    kept = []

    def writes(x):
        kept.append(x * 2)
        return x

    def returns(x):
        return x, x * 2

    assert "FB0025" in reasons(lambda t: torch.vmap(writes)(t) + 1)[0]
    assert reasons(lambda t: torch.vmap(returns)(t)[0] + 1) == ([], 1)


def test_modules_are_no_reason():
    module = nn.Linear(3, 3)
    assert reasons(lambda t: module(t)) == ([], 1)


def test_a_tensor_that_is_printed_is_printed_outside(capsys):
    def broken(t):
        t = t + 1
        print("t", t)
        return t * 2

    assert reasons(broken)[0] == ["FB0023"]
    assert reasons(lambda t: t * 2) == ([], 1)
    assert "tensor(" in capsys.readouterr().out
