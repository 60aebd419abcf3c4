"""Objects of the program that functions in C are given, and what the typing module makes: each
statement is one graph with what eager gives, twice, and the same order of calls.
"""

import re
import threading
import typing

import pytest
import torch

NAMES = """
import os, re, threading, typing, weakref
LOG = []
class Answers:
    def __init__(self, answer): self.answer = answer
    def __fspath__(self): LOG.append("__fspath__"); return self.answer
    def __bytes__(self): LOG.append("__bytes__"); return self.answer
    def __index__(self): LOG.append("__index__"); return self.answer
class OnlySet:
    def __get__(self, o, kind=None): return 3
    def __set__(self, o, value): LOG.append(value)
class OnlyDelete:
    def __get__(self, o, kind=None): return 3
    def __delete__(self, o): LOG.append("deleted")
class Held:
    s, d = OnlySet(), OnlyDelete()
class Version(str):
    def __eq__(self, other): LOG.append("__eq__"); return True
    def __hash__(self): LOG.append("__hash__"); return 1
T = typing.TypeVar("T")
class G(typing.Generic[T]):
    def __init__(self, a): self.a = a
held, version = Held(), Version("v1.25")
"""
ANSWERS = ("a/b", b"ab", 9, -1, True, 2.5, None)
STATEMENTS = [
    *(
        f"found.append({fn}(Answers({answer!r})))"
        for fn in ("os.fspath", "bytes", "hex", "oct", "bin", "chr")
        for answer in ANSWERS
        if (fn, answer) != ("chr", "a/b")
    ),
    "found.append((__import__('os').sep, __import__('os.path').sep))",
    "del held.s",
    "held.d = 4",
    "del held.d; held.s = 4",
    *(
        f"found.append({call})"
        for method in ("search", "match", "fullmatch", "split", "findall")
        for call in (
            f"re.{method}(r'v?(\\d+)', version)",
            f"re.compile(r'v?(\\d+)').{method}(version)",
            f"re.{method}(string=version, pattern='V', flags=re.I)",
        )
    ),
    "found.append([m.group() is version for m in re.finditer('.*', version)])",
    "found.append(type(re.match('.*', version).group()))",
    "S = typing.TypeVar('S', int, str); found.append((S.__name__, S.__constraints__))",
    "found.append(typing.Generic[typing.TypeVar('S')].__parameters__[0].__name__)",
    "class K(typing.Generic[typing.TypeVar('S')]): k = t\n    found.append((K.k, K[int]().k))",
    "S = typing.TypeVar('S'); U = typing.TypeVar('U')\n"
    "    class K(typing.Generic[S, U]):\n        def __init__(self, a: S): self.a = a\n"
    "    class L(K[int, U]): pass\n"
    "    found.append((K(3).a, L[str](t).a, [p.__name__ for p in L.__parameters__]))",
    "found.append((G(3).a, G[int](t).a, G[T], G.__parameters__))",
    "found.append(threading.get_ident() == threading.get_ident())",
    "k = Held(); found.append(weakref.ref(k)() is k)",
    "k = [Held()]; r = weakref.ref(k[0]); found.append(r() is k[0])",
    "k = t + 1; r = weakref.ref(k); found.append(r() is k)",
]


def shown(value):
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    return re.sub(r" at 0x\w+", "", repr(value))


@pytest.mark.parametrize("statement", STATEMENTS, ids=range(len(STATEMENTS)))
def test_a_statement_is_one_graph(statement, capture, backend):
    text = f"{NAMES}def f(t):\n  found = []\n  try:\n    {statement}\n"
    text += "  except Exception as error: found.append((type(error), str(error)))\n"
    told = []
    for compiled in (False, True):
        names = {"__name__": "program"}
        exec(text + "  return t + 1, found\n", names)
        run = capture(names["f"], nopython=True) if compiled else names["f"]
        told.append([shown(run(torch.ones(2))) for _ in range(2)] + [names["LOG"]])
    assert told[1] == told[0]
    assert len(backend) == 1


@pytest.mark.parametrize("kept", ["k = 1", "del k", "k = [k]; k.clear()"])
def test_whether_a_new_object_lives_is_left_to_python(kept, capture):
    names = {"__name__": "program"}
    text = f"def f(t):\n    k = Held()\n    r = weakref.ref(k)\n    {kept}\n    return t + 1, r()\n"
    exec(NAMES + text, names)
    assert capture(names["f"])(torch.ones(2))[1] is None is names["f"](torch.ones(2))[1]


def test_another_thread_has_another_number(capture):
    found = []
    compiled = capture(lambda t: (t + 1, threading.get_ident()))

    def call():
        found.append(compiled(torch.ones(1))[1] == threading.get_ident())

    for _ in range(2):
        call()
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert found == [True] * 4


def test_a_text_that_was_matched_is_guarded(capture):
    class Text(str):
        pass

    compiled = capture(lambda t, text: (t + 1, re.search(r"\d", text) is not None))
    given: typing.Any
    for given, there in ((Text("a1"), True), (Text("a"), False), (Text("2"), True)):
        assert compiled(torch.ones(1), given)[1] is there
