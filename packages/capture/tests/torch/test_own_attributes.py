"""Attributes that the program sets on plain tensors: of its own, of the graph's, of parameters.

Generated: values by what is done with them, on tensors that stay, leave or are met again."""

import pytest
import torch
from flambeau_capture.api import compiler_of
from torch.utils.checkpoint import checkpoint

TENSORS = {"own": "t = x", "new": "t = x + 1", "view": "t = x[0]", "parameter": "t = p"}
USES = {
    "number": "t.tag = 3\nreturn t * t.tag",
    "leaves": "t.tag = 'word'\nreturn t",
    "in a container": "t.tag = [1]\nd = {'t': t}\nreturn d, t.tag, d['t'].tag is t.tag",
    "a tensor": "t.other = t * 2\nreturn t.other + t, t",
    "itself": "t.me = t\nreturn t.me.me is t, t * 1",
    "asked": "a = hasattr(t, 'tag')\nt.tag = None\n"
    "return a, hasattr(t, 'tag'), getattr(t, 'gat', 7), t * 2",
    "set again": "t.tag = 1\nt.tag = 2\nsetattr(t, 'tig', t.tag + 1)\nreturn t.tig, t",
    "written in place": "t.tag = 1\nu = t.mul(2)\nu.tag = 5\nu.add_(1)\nreturn u, u.tag, t",
    "lost": "t.tag = 1\nreturn hasattr(t * 2, 'tag'), hasattr(t.detach(), 'tag'), t * 3",
    "met again": "t.tag = 1\nseen.append(t)\nreturn seen[0].tag, seen[0] is t",
    "after a break": "t.tag = 1\nprint(end='')\nreturn t * t.tag, t",
    "deleted": "t.tag = 1\ndel t.tag\nreturn hasattr(t, 'tag'), t",
    "missing": "return t.nothing",
    "a class": "t.tag = int\nt.fn = abs\nreturn t.fn(t), t.tag(2)",
    "checkpointed": "t.tag = 2\n"
    "return checkpoint(lambda v: v.sin() * v.tag, t, use_reentrant=False)",
}
WHOLE = set(USES) - {"after a break", "deleted", "checkpointed", "missing"}


def shown(value, depth=0):
    if isinstance(value, torch.Tensor):
        own = {k: shown(v, depth + 1) for k, v in vars(value).items()} if depth < 3 else ()
        return value.tolist(), value.requires_grad, own
    if isinstance(value, (list, tuple)):
        return [shown(one, depth) for one in value]
    return {k: shown(v) for k, v in value.items()} if isinstance(value, dict) else value


def seen(fn, grad):
    found = []
    x, p = torch.ones(2, 2).requires_grad_(grad), torch.nn.Parameter(torch.ones(2))
    for _ in range(2):
        held = []
        try:
            end = fn(x, p, held)
        except AttributeError as error:
            end = str(error)
        found.append(shown([end, x, p, held]))
    return found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("use", USES)
def test_it_is_as_in_eager(capture, use, tensor, grad):
    lines = f"{TENSORS[tensor]}\n{USES[use]}".splitlines()
    space = {"checkpoint": checkpoint}
    exec("def fn(x, p, seen):\n" + "".join(f"    {line}\n" for line in lines), space)
    compiled = capture(space["fn"])
    assert seen(compiled, grad) == seen(space["fn"], grad)
    if use in WHOLE:
        assert not compiler_of(compiled).records.breaks
