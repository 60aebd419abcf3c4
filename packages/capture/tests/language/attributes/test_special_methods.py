"""The special methods of Python's data model, each with answers that it may give and may not: what
comes of it in an operator, a built-in function or a statement is what CPython makes of it, class
and words of the exception included. Generated: every method, every answer, every use.
"""

import collections
import itertools
import linecache

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.builtins.operations.operator_tables import OPERATORS
from special_uses import LIKE_MANY, USES, is_statement, plain

ANSWERS = {
    "none": "return None",
    "float": "return 1.2",
    "negative": "return -1",
    "zero": "return 0",
    "text": "return 'a'",
    "bytes": "return b'x'",
    "large": "return 10**30",
    "not_implemented": "return NotImplemented",
    "true": "return True",
    "own_integer": "return Integer(3)",
    "own_text": "return Text('q')",
    "own_float": "return Float(2.5)",
    "itself": "return self",
    "another": "return Other()",
    "list": "return [1, 2]",
    "iterator": "return iter([1, 2])",
    "tuple": "return (1, 2)",
    "complex": "return 1j",
    "class": "return int",
    "error": "raise KeyError('own')",
    "stop": "raise StopIteration('own')",
    "attribute_error": "raise AttributeError('own')",
    "type_error": "raise TypeError('own')",
    "index_error": "raise IndexError('own')",
}
FEW = ["none", "float", "text", "not_implemented", "itself", "error", "type_error"]
HEAD = """
import cmath, math, operator, os
class Integer(int): pass
class Text(str): pass
class Float(float): pass
class Other: pass
def f_star(*args): return len(args)
class DictOf(dict):
    def __init__(self, o): self.o = o
    def __missing__(self, key): return type(self.o).__missing__(self.o, key)
"""


def program(method, answers):
    made, body = [HEAD], ["def f(t):", "    out = []"]
    for answer in answers:
        static = "    @staticmethod\n" if method == "__new__" else ""
        made += [
            f"class C_{answer}:\n{static}    def {method}(self, *args): {ANSWERS[answer]}",
            f"o_{answer} = object.__new__(C_{answer})",
        ]
        for use in USES[method]:
            body += ["    try:", f"        o = o_{answer}"]
            if is_statement(use):
                body += [f"        {use}", "        found = 'done'"]
                if "= 1" in use and not use.startswith("o"):
                    body += ["        found = o"]
            else:
                body += [f"        found = {use}"]
            body += [
                f"        out.append(({answer!r}, {use!r}, 'answers', found))",
                "    except BaseException as error:",
                f"        out.append(({answer!r}, {use!r}, 'raises', type(error), str(error)))",
            ]
    text = "\n".join([*made, *body, "    return t + 1, out", ""])
    path = f"/special/{method}_{len(answers)}_{answers[0]}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    namespace = {"__name__": "program"}
    exec(compile(text, path, "exec"), namespace)
    return namespace["f"]


def differences(method, answers):
    f = program(method, answers)
    compiled = optimize("eager", raise_internal_errors=True)(f)
    want = f(torch.ones(2))[1]
    got = compiled(torch.ones(2))[1]
    assert not compiler_of(compiled).records.faults
    assert len(want) == len(got)
    return [(a, b) for a, b in zip(want, got) if [plain(x) for x in a] != [plain(x) for x in b]]


@pytest.mark.sweep(18)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", USES)
def test_a_special_method_may_answer_anything(method):
    assert not differences(method, FEW if method in LIKE_MANY else list(ANSWERS))


if __name__ == "__main__":  # one answer at a time, to see what a difference comes from
    import sys

    for method in sys.argv[1:] or USES:
        for answer in ANSWERS:
            try:
                found = differences(method, [answer])
            except Exception as error:
                found = [(type(error), str(error)[:300])]
            for each in found:
                print(method, each, flush=True)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "//", "%", "**", "@", "<<", "&", "|", "^"])
def test_two_objects_of_one_class_are_asked_once(backend, symbol):
    """A reflected method is for another class's operand, and a subclass's goes first."""
    _, own, reflected = OPERATORS[symbol]
    answers = {own: lambda self, other: NotImplemented, reflected: lambda self, other: "reflected"}
    first = type("First", (), dict(answers))
    classes = (first, type("Second", (), dict(answers)), type("Under", (first,), dict(answers)))
    fn = eval(f"lambda x, a, b: (x + 1, a {symbol} b)")
    for left, right in itertools.product(classes, repeat=2):
        a, b = left(), right()
        told = []
        for run in (fn, optimize(backend)(fn)):
            try:
                told.append(run(torch.ones(1), a, b)[1])
            except TypeError as error:
                told.append(str(error))
        assert told[0] == told[1], (left, right)


COMPARED = {
    "tuple": "(o,) == (p,)", "list": "[o] != [p]", "order": "(o, 1) < (p, 2)", "in": "o in [p]",
    "count": "[p].count(o)", "index": "[p, o].index(o)", "dict": "{1: o} == {1: p}",
    "deque": "collections.deque([o]) == collections.deque([p])",
}  # fmt: skip


@pytest.mark.parametrize("compared", COMPARED)
def test_of_one_object_in_two_containers_nothing_is_asked(compared, capture):
    class Equal:
        def __eq__(self, other):
            log.append("asked")
            return True

    log = []
    space = {"collections": collections}
    exec(f"def f(x, o, p):\n    return x + 1, {COMPARED[compared]}", space)
    by, one = capture(space["f"]), Equal()
    for other in (Equal(), one, Equal()):
        seen = []
        for call in (space["f"], by):
            log.clear()
            seen.append((call(torch.ones(1), one, other)[1], [*log]))
        assert seen[0] == seen[1]
