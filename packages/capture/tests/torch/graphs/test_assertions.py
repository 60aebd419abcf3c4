"""`assert`, or an `if` that raises, of what depends on a tensor's data: a check of the graph, or a
break; never another end.

Generated: forms of the statement by where it stands, each with data that passes and that fails.
"""

import pytest
import torch
from flambeau_capture.api import compiler_of

FORMS = {
    "comparison": "assert x[0] == 1",
    "with words": "assert (x > 0).all(), 'all are positive'",
    "negated": "assert not (x < 0).any(), 'none is negative'",
    "a number": "assert x.min().clamp(min=0), 'not zero'",
    "both": "assert (x > 0).all() and x[0] == 1, 'both'",
    "either constant": "assert n == 0 or x[0] == 1, 'either'",
    "an if": "if (x < 0).any(): raise ValueError('negative')",
    "an if not": "if not (x > 0).all(): raise RuntimeError('not positive')",
    "a bare class": "if x[0] != 1: raise IndexError",
    "no words": "if x[0] != 1: raise TypeError()",
    "an else": "if x[0] == 1: n += 1\nelse: raise KeyError('key')",
    "of two": "if x[0] != 1 or x[1] < 0: raise ValueError('of two')",
    "an own error": "if x[0] != 1: raise Own('mine')",
    "a hidden error": "if x[0] != 1: raise OSError('hidden')",
    "two words": "if x[0] != 1: raise ValueError('a', 'b')",
    "a cause": "if x[0] != 1: raise ValueError('a') from None",
    "computed words": "assert (x > 0).all(), f'{n} and {x[0].item()}'",
    "many elements": "assert x == 1, 'ambiguous'",
}
WHOLE = set(FORMS) - {
    "computed words", "many elements", "an own error", "a hidden error", "two words", "a cause",
}  # fmt: skip
PLACES = {
    "first": "FORM\nreturn x * 2",
    "later": "y = x.sin()\nFORM\nz = y * 2\nreturn z + 1",
    "called": "def check(x, n):\n    FORM\ncheck(x, n)\nreturn x.cos()",
    "after a write": "LOG.append(n)\nx.add_(0)\nFORM\nreturn x * 2",
    "before a write": "FORM\nLOG.append(n)\nx.mul_(2)\nreturn x * 2",
    "handled": "try:\n    FORM\nexcept Exception as e:\n    return x - len(str(e))\nreturn x",
    "then a write, handled": "try:\n    FORM\n    x.mul_(2)\nexcept Exception:\n    return x\n"
    "return x + 1",
    "finally": "try:\n    FORM\nfinally:\n    LOG.append(2)\nreturn x",
    "no_grad": "with torch.no_grad():\n    FORM\nreturn x * 2",
    "before a break": "FORM\ny = x.sum().item()\nreturn x * y",
}
IN_GRAPH = {"first", "later", "called", "before a write"}
#: where a graph that raises leaves nothing, and the program says and handles what it does in eager
RUN_AGAIN = {"handled", "finally", "no_grad"}
DATA = ([1.0, 2.0], [1.0, -2.0], [-1.0, 2.0], [float("nan"), 2.0], [1.0, 0.0])


class Own(Exception):
    """An error of the program's own."""


def function(place, form):
    lines = []
    for line in PLACES[place].split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += line.replace("FORM", FORMS[form].replace("\n", f"\n{indent}")).split("\n")
    space = {"torch": torch, "LOG": [], "Own": Own, "OSError": Own}
    exec(compile("def f(x, n=1):\n" + "\n".join("    " + i for i in lines), place, "exec"), space)
    return space["f"], space["LOG"]


def seen(fn, log, data, grad):
    log.clear()
    x = torch.tensor(data)
    given = x.requires_grad_() * 1 if grad else x
    try:
        end = fn(given)
        if grad:
            end.sum().backward()
        end = end.tolist(), None if x.grad is None else x.grad.tolist()
    except Exception as error:
        end = type(error), None if "ambiguous" in str(error) else error.args
    return str((end, given.tolist(), log, torch.is_grad_enabled()))


@pytest.mark.parametrize("form", sorted({*FORMS} - WHOLE - {"many elements"}))
@pytest.mark.parametrize("place", ["first", "later", "called"])
def test_words_that_only_running_code_knows(capture, place, form):
    fn, log = function(place, form)
    compiled = capture(fn)
    for data in DATA:
        assert seen(compiled, log, data, False) == seen(fn, log, data, False)
    assert not compiler_of(compiled).records.breaks


def test_a_check_that_fails_in_most_calls_is_a_break(capture, backend):
    def fn(x):
        try:
            if x[0] > 0:
                raise ValueError("positive")
        except ValueError:
            return x + 1
        return x * 2

    compiled, given = capture(fn), torch.ones(9999)  # too many to be read before the graph
    for _ in range(12):
        assert torch.equal(compiled(given), fn(given))
    assert compiler_of(compiled).records.breaks and len(backend) > 1


@pytest.mark.sweep(4)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("grad", [False, True])
def test_it_ends_as_in_eager(capture, place, form, grad):
    fn, log = function(place, form)
    compiled = capture(fn)
    for data in (*DATA, DATA[0]):
        assert seen(compiled, log, data, grad) == seen(fn, log, data, grad)
    whole = form in WHOLE if place in IN_GRAPH else form != "many elements"
    if place in (IN_GRAPH | RUN_AGAIN) and whole:
        assert not compiler_of(compiled).records.breaks
