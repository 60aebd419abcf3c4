"""Forms of Python's reference, chapter by chapter: what they give, raise and change.

Each program runs twice as it is and twice captured; those of `ONE_GRAPH` without a break. Drawn
ones are the campaign's family of the same name.
"""

import collections
import copy
import functools
import itertools
import re
import types
import typing
import weakref
from textwrap import indent

import pytest
import torch
from flambeau_capture import Unsupported

DEFINED = {
    "Seq": "class Seq:\n    def __getitem__(self, k): return k",
    "Kind": "class Kind:\n    def __class_getitem__(cls, k):\n        LOG.append(type(k))\n"
    "        return cls.__name__, k",
    "Ending": "class Ending:\n    def __init__(self, k): self.k = k\n"
    "    def __del__(self): LOG.append('end')",
    "Plain": "class Plain:\n    pass",
    "Own": "class Own(Exception):\n    pass",
    "failing": "def failing(k):\n    raise ExceptionGroup('g', [Own(k), KeyError('b'), "
    "ExceptionGroup('h', [Own(9), ValueError(k)])])",
}
#: what a deque's iterators notice, and what they do not
ON_DEQUES = (
    "q.rotate(0)", "q.rotate(1)", "q.extend([])", "q.clear()", "q.insert(0, 1)", "q.remove(5)",
    "q.reverse()", "q.__init__([3, 4])", "q.pop()", "q.append(1)", "del q[0]", "q[0] = 3",
)  # fmt: skip
ONE_GRAPH = {
    **{
        f"deque: {change}": f"q = collections.deque([5, 6, 7], {bound})\nfor it in (iter(q), "
        f"reversed(q)):\n    R.append(next(it))\n{indent(change, '    ')}\n    for _ in range(3):\n"
        "        try: R.append(next(it, 'end'))\n"
        "        except RuntimeError as e: R.append(str(e))\n"
        "    q = collections.deque([5, 6, 7])"
        for change in ON_DEQUES
        for bound in (None if change == "q.insert(0, 1)" else 3,)
    },
    "deque: iterators that leave": "q = collections.deque([1, 2, 3])\n"
    "its = [iter(q), reversed(q)]\n[next(it) for it in its]\n"
    "R.append([type(it).__name__ for it in its])\nR.append(its)",
    "deque of the program": "it = iter(GIVEN)\nGIVEN.append(4)\ntry: next(it)\n"
    "except RuntimeError as e: R.append(str(e))",
    "function: __kwdefaults__": "def g(*a, c=5): return c\ng.__kwdefaults__ = d = {'c': t}\n"
    "d['c'] = 8\nR.append((g(1), g.__kwdefaults__ is d, vars(g)))",
    "function: __defaults__": "def g(a=1): return a\ng.__defaults__ = (7,)\nR.append(g())\n"
    "g.__defaults__ = None\ntry: g()\nexcept TypeError as e: R.append(str(e))",
    "function: of another class": "def g(a=1): return a\nfor name, v in (('__defaults__', [1]), "
    "('__kwdefaults__', 3), ('__name__', 4), ('__code__', 1), ('__globals__', {}), "
    "('__annotations__', 7)):\n    try: setattr(g, name, v)\n    except Exception as e: "
    "R.append(repr(e))",
    "generator that runs itself": "def g():\n    me = yield\n    next(me)\ni = g()\nnext(i)\n"
    "try: i.send(i)\nexcept ValueError as e: R.append(str(e))",
    "super of another class": "try: super(Seq, Plain()).x\nexcept TypeError as e: R.append(str(e))",
    "reversed without __len__": "try: reversed(Seq())\nexcept TypeError as e: R.append(str(e))",
    "class subscripts": "class Sub(Kind): pass\nR.append((Kind[1], Sub['a', 2], Kind[t][0]))",
    "names of built-in classes": "for o in (collections.OrderedDict, types.SimpleNamespace(), "
    "collections.deque, functools.partial(len), itertools.count()):\n    try: o.none\n"
    "    except AttributeError as e: R.append(str(e))",
    "total_ordering of a class made here": "@functools.total_ordering\nclass O:\n"
    "    def __init__(self, k): self.k = k\n    def __eq__(self, o): return self.k == o.k\n"
    "    def __lt__(self, o): return self.k < o.k\nR.append((O(1) <= O(2), O(1) >= O(3)))",
    "special methods that are set": "class C: pass\nC.__len__ = lambda self: 2\n"
    "C.__init__ = lambda self, k=3: setattr(self, 'k', k)\nR.append((len(C()), C(4).k))",
    "except*: two clauses": "try: failing(1)\nexcept* Own as e: R.append((len(e.exceptions), "
    "str(e)))\nexcept* Exception as e: R.append(repr(e))",
    "except*: what is left": "try:\n    try: failing(1)\n    except* (KeyError, TypeError) as e: "
    "R.append(repr(e))\nexcept ExceptionGroup as e: "
    "R.append((repr(e), e.__context__, e.__cause__))",
    "except*: raised, raised again": "try:\n    try: failing(1)\n    except* Own: pass\n"
    "    except* LookupError: raise\n    except* ValueError as e: raise KeyError('new')\n"
    "except ExceptionGroup as e: R.append((repr(e), [repr(k.__context__) for k in e.exceptions]))",
    "except*: raised by name": "try:\n    try: failing(1)\n    except* Own as e: raise e\n"
    "    except* KeyError as e: raise Own(2) from e\nexcept Exception as e: R.append(repr(e))",
    "except*: one exception": "try: raise Own(1)\nexcept* Own as e: R.append(repr(e))\ntry:\n"
    "    try: raise Own(2)\n    except* KeyError: pass\nexcept Own as e: R.append(e.args)",
    "except*: classes that it refuses": "try:\n    try: raise Own(1)\n"
    "    except* ExceptionGroup: pass\nexcept TypeError as e: R.append(str(e))",
    "except*: none raised": "try: R.append(1)\nexcept* Own: R.append(2)\nelse: R.append(3)\n"
    "finally: R.append(4)",
    "except*: in a loop": "for k in (1, 2):\n    try: failing(k)\n    except* Own as e:\n"
    "        t = t + len(e.exceptions)\n    except* Exception: R.append(k)",
    "groups: own derive": "class G(ExceptionGroup):\n"
    "    def derive(self, excs): return G(self.message + '!', excs)\n"
    "try: raise G('m', [Own(1), KeyError(2)])\nexcept* Own as e: R.append((type(e).__name__, "
    "str(e)))\nexcept* KeyError as e: R.append(e.message)",
    "groups: notes": "g = ExceptionGroup('g', [Own(1), KeyError(2)])\ng.add_note('why')\n"
    "try: raise g\nexcept* Own as e: R.append((e.__notes__, e is g))\n"
    "except* KeyError as e: R.append(e.__notes__)",
    "groups: taken apart": "try: failing(1)\nexcept ExceptionGroup as e:\n"
    "    R.append(list(map(repr, e.split(Own))))\n    R.append(e.subgroup(OSError))\n"
    "    R.append(repr(e.subgroup((KeyError, ValueError))))\n"
    "    R.append(repr(e.derive([Own(3)])))\n"
    "    R.append(repr(e.split(lambda one: isinstance(one, KeyError))[0]))",
    "classes of typing": "for k in (typing.List, typing.List[int], typing.Union[int, str], "
    "typing.Optional[int], typing.Callable, typing.Any, typing.Sized, typing.Literal['a'], "
    "list[int], int | str, int | list[int], (list, list[int])):\n    for ask, a in ((isinstance, "
    "[]), (issubclass, list)):\n        try: R.append(ask(a, k))\n"
    "        except TypeError as e: R.append(str(e))",
}  # fmt: skip
WITH_BREAKS = {
    "an object that is copied ends": "R.append(copy.deepcopy(ENDING).k)\nR.append([*LOG])",
    "a reference with a callback": "a = Plain()\nw = weakref.ref(a, lambda r: R.append('dead'))\n"
    "del a\nR.append(w())",
    "a reference from a call": "def g():\n    a = Plain()\n    return weakref.ref(a, lambda r: "
    "R.append('dead'))\nw = g()\nR.append(w())",
    "a metaclass that is asked for the order": "class Meta(type):\n    def mro(cls): return "
    "super().mro()\nclass C(metaclass=Meta): k = 3\nR.append(C.k)",
}


def told(body, wrap):
    """Results, arguments and log of two calls."""
    space = {}
    modules = (collections, copy, functools, itertools, types, typing, weakref, torch)
    space |= {module.__name__: module for module in modules}
    space |= {"__name__": "reference", "LOG": [], "GIVEN": collections.deque([1, 2, 3])}
    for text in DEFINED.values():
        exec(text, space)
    space["ENDING"] = space["Ending"](3)
    source = f"def f(x):\n    R, t = [], x * 2\n{indent(body, '    ')}\n    return t + 1, R\n"
    exec(source, space)
    fn, found = wrap(space["f"]), []
    for start in (1.0, 2.0):
        try:
            result = fn(torch.full((2,), start))
        except Exception as error:
            result = type(error), str(error)
        found.append(re.sub("0x[0-9a-f]+", "", repr((result, space["LOG"], space["GIVEN"]))))
    return found


@pytest.mark.parametrize("name", [*ONE_GRAPH, *WITH_BREAKS])
def test_forms_do_what_they_do_uncaptured(capture, name):
    body = ONE_GRAPH.get(name) or WITH_BREAKS[name]
    assert told(body, capture) == told(body, lambda fn: fn)


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_forms_are_in_one_graph(capture, name):
    found = told(ONE_GRAPH[name], lambda fn: capture(fn, nopython=True))
    assert Unsupported.__name__ not in str(found)
