"""`nn.Module.__setattr__` as a state machine: a name moves between `__dict__`, `_parameters`,
`_buffers` and `_modules`, or is refused, as in eager. Generated: every first state, every move, and
sequences of moves by seed.
"""

import linecache
import random

import pytest
import torch
from flambeau_capture import optimize
from torch import nn

MAKERS = {
    "plain": "7",
    "module": "nn.ReLU()",
    "parameter": "nn.Parameter(torch.ones(2))",
    "tensor": "torch.zeros(2)",
    "buffer": "nn.Buffer(torch.ones(2))",
    "none": "None",
}
MOVES = {k: f"o.a = given[{k!r}]" for k in MAKERS} | {
    "del": "del o.a",
    "dict": "o.__dict__['a'] = 3",
    "register": "o.register_buffer('a', given['tensor'])",
    "read": "out.append(type(o.a).__name__)",
    "has": "out.append(hasattr(o, 'a'))",
    "registerp": "o.register_parameter('a', given['parameter'])",
    "add": "o.add_module('a', given['module'])",
    "new": "o.a = nn.Parameter(t * 1)",
    "newm": "o.a = nn.Identity()",
}


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = 1


class Bare(nn.Module):
    def __init__(self):
        pass


def state(o, given):
    n = {id(v): k for k, v in given.items()}

    def show(v):
        return n.get(id(v)) or (
            type(v).__name__,
            v.tolist() if isinstance(v, torch.Tensor) else None,
        )

    d = object.__getattribute__(o, "__dict__")
    r = {
        k: ({i: show(j) for i, j in d[k].items()} if isinstance(d[k], dict) else sorted(d[k]))
        for k in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")
        if k in d
    }
    return r, {k: show(v) for k, v in d.items() if k in ("a", "b")}, list(d)


def program(first, moves):
    body = ["def f(t, o, given):", "    out = []"]
    for m in moves:
        body += [
            "    try:",
            f"        {MOVES[m]}",
            "    except Exception as e:",
            "        out.append((type(e).__name__, str(e)))",
        ]
    body += ["    return t + 1, out"]
    ns = {"nn": nn, "torch": torch}

    text = "\n".join(body) + "\n"
    path = f"/state/{'_'.join((first,) + moves)}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    exec(compile(text, path, "exec"), ns)
    return ns["f"]


def played(wrap, f, cls, first):
    run = wrap(f)
    told = []
    for _ in range(2):
        given = {k: eval(v) for k, v in MAKERS.items()}
        o = cls()
        if first != "absent":
            exec(
                MOVES[first],
                {"o": o, "given": given, "nn": nn, "torch": torch, "t": torch.ones(2), "out": []},
            )
        try:
            res = run(torch.ones(2), o, given)[1]
        except Exception as e:
            res = (type(e).__name__, str(e))
        told.append((res, state(o, given)))
    return told


def agree(cls, first, moves):
    f = program(first, moves)
    theirs = played(lambda f: f, f, cls, first)
    assert played(optimize("eager", raise_internal_errors=True), f, cls, first) == theirs, moves


@pytest.mark.parametrize("first", ["absent", *MAKERS, "register"])
def test_every_move_from_every_state(first):
    for move in MOVES:
        agree(M, first, (move,))
        if first == "absent":
            agree(Bare, first, (move,))


@pytest.mark.parametrize("seed", range(5))
def test_sequences_of_moves(seed):
    draw = random.Random(seed)
    for _ in range(12):
        agree(M, draw.choice(["absent", *MAKERS]), tuple(draw.choices(list(MOVES), k=4)))
