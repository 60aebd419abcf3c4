# ruff: noqa: E501
"""A class's own ways to attributes (`__getattribute__`, `__getattr__`, properties, descriptors,
slots): they are asked as often as in eager, by no guard and by no code that loads or stores.
Generated: every base, every way, every use; three calls on three objects.
"""

import linecache
import os
from unittest import mock

import pytest
import torch
from flambeau_capture import optimize
from torch import nn

LOG = []
WAYS = {
    "none": "",
    "getattribute": "    def __getattribute__(s, n):\n        if n not in QUIET: LOG.append(n)\n        return object.__getattribute__(s, n)\n",
    "super": "    def __getattribute__(s, n):\n        if n not in QUIET: LOG.append(n)\n        return super().__getattribute__(n)\n",
    "getattr": "    def __getattr__(s, n):\n        if n not in QUIET: LOG.append(n)\n        if n == 'lost': return T\n        raise AttributeError(n)\n",
    "both": "    def __getattribute__(s, n):\n        if n not in QUIET: LOG.append(n)\n        return super().__getattribute__(n)\n    def __getattr__(s, n):\n        LOG.append('?' + n)\n        if n == 'lost': return T\n        raise AttributeError(n)\n",
    "property": "    @property\n    def t(s):\n        LOG.append('p')\n        return s.__dict__['t']\n    @t.setter\n    def t(s, v):\n        LOG.append('s')\n        s.__dict__['t'] = v\n",
    "descriptor": "    t = Data()\n",
    "nondata": "    t = NonData()\n    lost = NonData()\n",
    "setattr": "    def __setattr__(s, n, v):\n        LOG.append('=' + n)\n        super().__setattr__(n, v)\n    def __delattr__(s, n):\n        LOG.append('-' + n)\n        super().__delattr__(n)\n",
    "dictprop": "    @property\n    def __dict__(s):\n        LOG.append('__dict__')\n        return {}\n",
    "classprop": "    @property\n    def __class__(s):\n        LOG.append('__class__')\n        return int\n",
    "slots": "    __slots__ = ('t', 'k', 'm', 'w', '__dict__')\n    def __getattribute__(s, n):\n        if n not in QUIET: LOG.append(n)\n        return object.__getattribute__(s, n)\n",
    "slotsgetattr": "    __slots__ = ('t', 'k', 'm', 'w', '__dict__')\n    def __getattr__(s, n):\n        if n not in QUIET: LOG.append(n)\n        raise AttributeError(n)\n",
}
BASES = {"object": "object", "module": "nn.Module", "dict": "dict", "list": "list"}
USES = {
    "t": "return a.t + x",
    "k": "return x * a.k",
    "m": "return x + a.m[0]",
    "m2": "a.m.append(2)\n    return x + len(a.m)",
    "lost": "return x + getattr(a, 'lost', 3)",
    "has": "return x + hasattr(a, 't') + hasattr(a, 'k') + hasattr(a, 'gone')",
    "dict": "return x + a.__dict__['t']",
    "vars": "return x + len(vars(a)) + vars(a)['k']",
    "in": "return x + ('k' in a.__dict__)",
    "set": "a.k = a.k + 1\n    return x * a.k",
    "sett": "a.t = a.t + 1\n    return a.t * x",
    "del": "del a.w\n    return x + hasattr(a, 'w')",
    "new": "a.z = x + 1\n    return a.z",
    "isinstance": "return x + isinstance(a, A) + isinstance(a, int)",
    "type": "return x + len(type(a).__name__) + len(a.__class__.__name__)",
    "ret": "y = x + a.t\n    return y, a, a.m",
    "id": "return x + (a is a.m) + a.k, a.t",
    "meth": "return x + a.meth()",
    "truth": "return x + bool(a)",
    "eq": "return x + (a == a) + (a == 1)",
    "brk": "y = x + a.t\n    print(end='')\n    return y + a.t, a.k",
    "brk2": "y = x + a.k\n    torch._C._log_api_usage_once('x') if x.sum() > 0 else None\n    return y + a.m[0]",
}
HEAD = """
class Data:
    def __get__(s, o, c):
        LOG.append('g')
        return s if o is None else object.__getattribute__(o, '__dict__')['t']
    def __set__(s, o, v):
        LOG.append('s')
        object.__getattribute__(o, '__dict__')['t'] = v
class NonData:
    def __get__(s, o, c):
        LOG.append('n')
        return 5
"""


def build(base, way, use):
    text = (
        HEAD
        + f"class A({BASES[base]}):\n"
        + WAYS[way]
        + f"    def meth(s): return s.k\ndef init(a, n):\n    own = object.__setattr__\n    if isinstance(a, nn.Module): nn.Module.__init__(a)\n    for k, v in dict(t=torch.ones(2) * n, k=2, m=[1], w=4).items():\n        own(a, k, v)\ndef f(a, x):\n    {USES[use]}\n"
    )
    path = f"/asked/{base}_{way}_{use}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    ns = {
        "LOG": LOG,
        "QUIET": ("_forward_hooks",),
        "torch": torch,
        "nn": nn,
        "T": torch.ones(2),
        "__name__": "asked",
    }
    exec(compile(text, path, "exec"), ns)
    return ns


def played(wrap, base, way, use):
    ns = build(base, way, use)
    run = wrap(ns["f"])
    told = []
    for n in range(3):
        a = ns["A"]()
        ns["init"](a, n)
        del LOG[:]
        try:
            res = run(a, torch.ones(2))
        except Exception as e:
            res = (type(e).__name__, str(e))
        log = list(LOG)
        res = str(
            [
                type(v).__name__ if type(v).__name__ == "A" else v
                for v in (res if isinstance(res, tuple) else (res,))
            ]
        )
        told.append((res, log))
    return told


@pytest.mark.sweep(6)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("base", BASES)
def test_a_way_to_attributes_is_asked_as_often_as_in_eager(base, way):
    """In every second use; in all with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`)."""
    step = 1 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 2
    first = (list(WAYS).index(way) + list(BASES).index(base)) % step
    for use in list(USES)[first::step]:
        try:
            theirs = played(lambda f: f, base, way, use)
        except TypeError:  # CPython makes no such class
            return
        with mock.patch("warnings.warn"):
            assert played(optimize("eager", raise_internal_errors=True), base, way, use) == theirs
