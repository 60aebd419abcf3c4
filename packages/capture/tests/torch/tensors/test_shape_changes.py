"""Changes of sizes and strides in place are part of the graph, of tensors that it makes and of the
program's own. Generated: methods by what is changed and by what is done around the change."""

import pytest
import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.errors import BackendError

METHODS = {
    "t_": "t_()",
    "transpose_": "transpose_(0, 1)",
    "swapaxes_": "swapaxes_(0, -1)",
    "swapdims_": "swapdims_(0, 1)",
    "squeeze_": "squeeze_()",
    "squeeze_ of one": "squeeze_(0)",
    "unsqueeze_": "unsqueeze_(1)",
    "unsqueeze_ by name": "unsqueeze_(dim=-1)",
    "detach_": "detach_()",
    "set_": "set_(other)",
}
MADE = {"new": "y = x + 1", "a view": "y = x[:1]", "a view of a new one": "y = (x + 1)[:, 1:]"}
AROUND = {
    "result": "y.CHANGE\nreturn y",
    "used": "y.CHANGE\nreturn y * 2, y.shape, y.stride()",
    "written after": "y.CHANGE\ny.add_(3)\nreturn y.sin(), x * 1",
    "written before": "y.mul_(2)\ny.CHANGE\nreturn y + 1",
    "a view before": "v = y.view(-1)\ny.CHANGE\nv.add_(1)\nreturn v, y",
    "kept by backward": "z = y.sin()\ny.CHANGE\nreturn z, y * 1",
    "another name": "w = y\nd = {'a': y}\nw.CHANGE\nreturn d['a'] * 2, y is w, y",
    "twice": "y.CHANGE\ny.unsqueeze_(0)\nreturn y * 2, y",
    "before a break": "y.CHANGE\nprint(end='')\nreturn y * 2, y",
}
OWN = {
    **{name: text for name, text in AROUND.items() if name != "kept by backward"},
    "held": "h.append(x)\nx.CHANGE\nreturn h[0] * 2",
}


def function(body, method):
    lines = body.replace("CHANGE", METHODS[method]).splitlines()
    space = {"torch": torch}
    text = "def f(x, other, h):\n" + "\n".join(f"    {line}" for line in lines)
    exec(compile(text, "<changes>", "exec"), space)
    return space["f"]


def described(value):
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.stride(), value.requires_grad, value.dtype
    return [described(v) for v in value] if isinstance(value, (tuple, list)) else value


def seen(fn, grad):
    x = torch.tensor([[1.0, 2.0, 3.0]])
    leaf, other, held = x.requires_grad_(grad), torch.ones(5), []
    given = leaf * 1 if grad else leaf
    try:
        found = fn(given, other, held)
        parts = found if isinstance(found, tuple) else (found,)
        tensors = [t for t in parts if isinstance(t, torch.Tensor) and t.requires_grad]
        if tensors:
            sum(t.sum() for t in tensors).backward()
    except BackendError:
        raise
    except Exception as error:
        return type(error)
    assert not held or held[0] is given
    return str(described([found, given, other, leaf.grad]))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("made", MADE)
def test_of_what_the_graph_makes(capture, made, around, grad):
    for method in METHODS:
        fn = function(f"{MADE[made]}\n{AROUND[around]}", method)
        compiled = capture(fn)
        wanted = seen(fn, grad)
        for _ in range(2):
            assert seen(compiled, grad) == wanted, method
        whole = made == "new" and around != "before a break" and isinstance(wanted, str)
        if whole and not (grad and method == "set_"):
            assert not compiler_of(compiled).records.breaks, method


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("around", OWN)
def test_of_the_programs_own(capture, around, grad):
    for method in METHODS:
        fn = function("y = x\n" + OWN[around], method)
        compiled = capture(fn)
        wanted = seen(fn, grad)
        for _ in range(2):
            assert seen(compiled, grad) == wanted, method
        named = "dim=" in METHODS[method] or around == "before a break" or grad
        named = named or (method == "set_" and around == "twice")
        if isinstance(wanted, str) and not named:
            assert not compiler_of(compiled).records.breaks, method


def test_data_of_other_sizes(capture):
    def fn(x, b):
        x.data = b
        b.add_(1)
        return x + 1, x.shape

    one, other = [(torch.ones(2), torch.zeros(2, 3, dtype=torch.double)) for _ in range(2)]
    compiled = capture(fn)
    assert described(compiled(*one)) == described(fn(*other))
    assert described(one) == described(other)
    assert one[0].data_ptr() == one[1].data_ptr()
    assert not compiler_of(compiled).records.breaks
