"""An operation that raises only when it has its data: the frame runs as it is, so that the program
raises, or handles, what it does without capture, after the same effects, from its own line.
Generated: operations by what they refuse, in each place of a program with and without handlers.
"""

import sys
import traceback
import warnings

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.errors import BackendError, CaptureWarning

REFUSED = {
    "index": "x[torch.tensor([9])]",
    "cast": "(x.long() + 1).mul_(1.5)",
    "singular": "torch.linalg.cholesky(-torch.eye(3) * x[0])",
    "kernel": "x.bitwise_and(x)",
}
PLACES = {
    "plain": "LOG.append(1)\nreturn (OP) + 1",
    "caught": "try:\n    y = OP\nexcept Exception as e:\n    y = x + len(type(e).__name__)\n"
    "return y",
    "finally": "try:\n    return OP\nfinally:\n    LOG.append(x.sum())",
    "else": "try:\n    y = x + 1\n    LOG.append(y)\n    y = OP\nexcept TypeError:\n    y = x\n"
    "else:\n    LOG.append(2)\nreturn y",
    "called": "def inner():\n    LOG.append(n)\n    return OP\ntry:\n    y = inner()\n"
    "except (IndexError, RuntimeError):\n    y = x * n\nreturn y",
    "no_grad": "with torch.no_grad():\n    y = OP\nreturn y",
    "enclosed": "k = n\ndef bump():\n    nonlocal k, n\n    k += 1\n    n += 1\nbump()\n"
    "LOG.append(k)\n"
    "y = OP\nreturn y * k * n",
    "after_break": "y = x.sum().item()\nLOG.append(y)\ntry:\n    return OP\nexcept Exception:\n"
    "    return y + n",
}


def function(place, operation):
    body = PLACES[place].replace("OP", REFUSED[operation])
    text = "def f(x, n=2, *args, k=1, **rest):\n" + "".join(
        f"    {line}\n" for line in body.splitlines()
    )
    space = {"torch": torch, "LOG": []}
    exec(compile(text, f"<{place}>", "exec"), space)
    return space["f"], space["LOG"]


def seen(call, log, x):
    log.clear()
    found = {"handled": sys.exc_info()[0]}
    try:
        found["result"] = call(x, 3, 4, k=5, z=6)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)
        own = [(frame.name, frame.lineno) for frame in last if frame.filename.startswith("<")]
        found["error"] = type(error), str(error), type(error.__context__), own[-1]
    found["log"] = [item.tolist() if isinstance(item, torch.Tensor) else item for item in log]
    found["mode"] = torch.is_grad_enabled(), sys.exc_info()[0]
    if isinstance(found.get("result"), torch.Tensor):
        found["result"] = found["result"].tolist()
    return found


@pytest.mark.parametrize("operation", REFUSED)
@pytest.mark.parametrize("place", PLACES)
def test_each_place(place, operation):
    f, log = function(place, operation)
    x = torch.arange(1.0, 4.0)
    expected = seen(f, log, x)
    ours = optimize("eager", raise_internal_errors=True)(f)
    for _ in range(2):
        assert seen(ours, log, x) == expected


def test_what_was_written_is_not_written_again():
    """A graph that writes to an argument before it raises is not run again."""

    def f(x, i):
        x.add_(1)
        return x[i]

    x = torch.zeros(3)
    with pytest.raises(IndexError):
        optimize("eager")(f)(x, torch.tensor([5]))
    assert x.tolist() == [1, 1, 1]


def test_interrupts_pass():
    def backend(module, inputs):
        def interrupted(*args):
            raise KeyboardInterrupt

        return interrupted

    with pytest.raises(KeyboardInterrupt):
        optimize(backend)(lambda x: x + 1)(torch.ones(2))
    assert sys.exc_info()[0] is None


class Own(Exception):
    """An error of a backend's own."""


KINDS = [
    IndexError, RuntimeError, NotImplementedError, TypeError, ValueError, KeyError, MemoryError,
    AttributeError, AssertionError, ZeroDivisionError, OSError, StopIteration, Own,
]  # fmt: skip
# what becomes of the function without capture, and the error of torch's that it meets
FATES = {
    "plain": ("return x + 1", None),
    "caught": ("try:\n    return x + 1\nexcept Exception:\n    return x", None),
    "raises": ("y = x + 1\nif x.shape[0] == 3:\n    raise LookupError('own')\nreturn y", None),
    "refused": ("return x[torch.tensor([9])]", IndexError),
    "handled": (
        "try:\n    return x[torch.tensor([9])]\nexcept IndexError:\n    return x",
        IndexError,
    ),
    "another": ("y = x + 1\ntry:\n    {}['k']\nexcept KeyError:\n    y = y * 2\nreturn y", None),
}  # fmt: skip


def failing(kind):
    def backend(module, inputs):
        def call(*args):
            raise kind("generated")

        return call

    return backend


def fate(name):
    lines = "".join(f"    {line}\n" for line in FATES[name][0].splitlines())
    space = {"torch": torch}
    exec(compile(f"def f(x):\n{lines}", f"<{name}>", "exec"), space)
    return space["f"]


def ends(call, x):
    try:
        return "returned", call(x).tolist()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FATES)
def test_a_backend_that_fails_in_a_call_is_told(name, kind, monkeypatch):
    """Whatever the program then does: only an error that torch raises there too is its own."""
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
    f, x, met = fate(name), torch.arange(3.0), FATES[name][1]
    own = met is not None and (issubclass(kind, met) or issubclass(met, kind))
    ours = optimize(failing(kind))(f)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(2):
            assert ends(ours, x) == ends(f, x)
    faults = compiler_of(ours).records.faults
    assert [type(fault.error) for fault in faults] == ([] if own or _breaks(ours) else [kind])
    assert all("generated" in str(fault) and "compiled graph" in str(fault) for fault in faults)
    assert [each.category for each in warned] == [CaptureWarning] * len(faults)


def _breaks(ours):
    """Whether no graph was made: the program raises before there is anything to compute."""
    return not compiler_of(ours).records.graphs


def test_a_backend_that_has_failed_in_a_call_is_called_no_more(monkeypatch):
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
    calls = []

    def fails(module, inputs):
        def run(*given):
            calls.append(len(given))
            raise ArithmeticError("no")

        return run

    compiled = optimize(fails)(lambda x: x * 2)
    with pytest.warns(CaptureWarning, match="runs eagerly from now on"):
        compiled(torch.ones(2))
    for size in (2, 2, 3):
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
    assert len(calls) == 1
    compiler_of(compiled).reset()
    with pytest.warns(CaptureWarning, match="runs eagerly from now on"):
        compiled(torch.ones(2))
    assert len(calls) == 2


@pytest.mark.parametrize("how", ["environment", "nopython"])
@pytest.mark.parametrize("name", ["plain", "caught", "handled"])
def test_or_is_an_error_where_that_is_asked_for(name, how, monkeypatch):
    strict = how == "nopython"
    monkeypatch.setenv("FLAMBEAU_FAULTS", "" if strict else "raise")
    ours = optimize(failing(Own), nopython=strict)(fate(name))
    with pytest.raises(BackendError if strict else Own, match="generated"):
        ours(torch.arange(3.0))
    assert compiler_of(ours).records.faults


def test_a_program_that_raises_by_itself_is_no_fault():
    for operation in REFUSED:
        f, _ = function("caught", operation)
        ours = optimize("eager", raise_internal_errors=True)(f)
        ours(torch.arange(1.0, 4.0), 3)
        assert not compiler_of(ours).records.faults


def derivative(x):
    inside = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(inside.sin().sum(), [inside])
    return found


LEAVES = {
    "writes": lambda x, i: x.add_(1)[i],
    "writes to a view": lambda x, i: x[:2].mul_(2)[i],
    "writes to data": lambda x, i: x.data.add_(1)[i],
    "writes by out": lambda x, i: torch.add(x, 1, out=x)[i],
    "draws": lambda x, i: torch.rand(3)[i] + x,
    "draws in place": lambda x, i: torch.empty(3).uniform_()[i] + x,
    "drops": lambda x, i: torch.nn.functional.dropout(x, 0.5)[i],
    "attention": lambda x, i: torch.nn.functional.scaled_dot_product_attention(
        *[x.expand(2, 3, 3)] * 3, dropout_p=0.5
    )[0, 0][i],
}
LEAVES_NOTHING = {
    "writes to its own": lambda x, i: x.clone().add_(1)[i],
    "kept in training": lambda x, i: torch.nn.functional.dropout(x, 0.5, training=False)[i],
    "attention": lambda x, i: torch.nn.functional.scaled_dot_product_attention(
        *[x.expand(2, 3, 3)] * 3
    )[0, 0][i],
    "drop in a name": lambda x, i: torch.poisson_nll_loss(x, x, True, False, 1e-8, 0)[i],
    "fraction": lambda x, i: torch.frac(x)[i],
    "derivative": lambda x, i: derivative(x)[i],
    "per sample": lambda x, i: torch.vmap(torch.sin)(x)[i],
}  # fmt: skip


@pytest.mark.parametrize("name", LEAVES)
def test_a_graph_that_leaves_something_is_run_once(name):
    """The program's argument and generator are as eager leaves them."""
    states = []
    for call in (LEAVES[name], optimize("eager", raise_internal_errors=True)(LEAVES[name])):
        torch.manual_seed(0)
        x = torch.ones(3)
        with pytest.raises(IndexError):
            call(x, torch.tensor([5]))
        states.append((x.tolist(), torch.rand(2).tolist()))
    assert states[0] == states[1]


@pytest.mark.parametrize("leaves", [False, True])
def test_what_a_graph_leaves_decides_who_answers(leaves, monkeypatch):
    """A backend that fails before it does anything: eager answers for it, or its error passes."""
    monkeypatch.delenv("FLAMBEAU_FAULTS", raising=False)
    for f in (LEAVES if leaves else LEAVES_NOTHING).values():
        ours = optimize(failing(Own))(f)
        with pytest.raises(Own if leaves else IndexError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours(torch.ones(3), torch.tensor([5]))


MODES = {
    "autocast": 'torch.autocast("cpu", torch.bfloat16)',
    "autocast off": 'torch.autocast("cpu", enabled=False)',
    "inference": "torch.inference_mode()",
    "not inference": "torch.inference_mode(False)",
    "no_grad": "torch.no_grad()",
    "kernels": "sdpa_kernel(MATH)",
}
WITHIN = {"plain": "y = (x @ x.T)[i]\nreturn y", "after a draw": "y = dropout(x)\nreturn y[i]"}
AFTER = {
    "uncaught": "with M:\n    with N:\n        BODY",
    "caught": "try:\n    with M:\n        with N:\n            BODY\nexcept IndexError:\n"
    "    return x @ x.T, torch.is_grad_enabled(), torch.is_inference_mode_enabled()",
}


def modes_of_torch():
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    depth = torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()
    grad = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    keys = str(torch._C._dispatch_tls_local_include_set())
    left_out = str(torch._C._dispatch_tls_local_exclude_set())
    return autocast, depth, grad, keys, left_out, torch.backends.cuda.flash_sdp_enabled()


PLACED = [(outer, inner, "plain", "caught") for outer in MODES for inner in MODES]
# a graph that draws is not run again: its error reaches the caller, whatever the program handles
PLACED += [(outer, "no_grad", within, "uncaught") for outer in MODES for within in WITHIN]


@pytest.mark.parametrize("outer, inner, within, after", PLACED)
def test_modes_are_left(outer, inner, within, after):
    """A graph that raises within modes of torch leaves them, and the program handles the error."""
    body = AFTER[after].replace("M:", MODES[outer] + ":").replace("N:", MODES[inner] + ":")
    pad = " " * (body.index("BODY") - body.rindex("\n", 0, body.index("BODY")) - 1)
    body = body.replace("BODY", WITHIN[within].replace("\n", "\n" + pad))
    text = "def f(x, i):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    dropout, kernels = torch.nn.functional.dropout, torch.nn.attention.sdpa_kernel
    math = torch.nn.attention.SDPBackend.MATH
    space = {"torch": torch, "dropout": dropout, "sdpa_kernel": kernels, "MATH": math}
    exec(text, space)
    x, i = torch.randn(3, 4), torch.tensor([0, 9])

    def observed(call):
        torch.manual_seed(0)
        try:
            found = call(x, i)
        except IndexError as error:
            found = str(error)
        else:
            found = found[0].tolist(), found[0].dtype, found[1:]
        return found, modes_of_torch(), torch.rand(1).item()

    expected = observed(space["f"])
    ours = optimize("eager", raise_internal_errors=True)(space["f"])
    for _ in range(2):
        assert observed(ours) == expected


def test_modes_are_left_by_graphs_that_are_interpreted():
    """A backend may run a graph node by node: its values are then the interpreter's."""

    def f(x, i):
        try:
            with torch.autocast("cpu"), torch.inference_mode():
                return (x @ x.T)[i]
        except IndexError:
            return x @ x.T

    def interpreting(module, inputs):
        return torch.fx.Interpreter(module).run

    x, i, before = torch.randn(3, 4), torch.tensor([0, 9]), modes_of_torch()
    ours = optimize(interpreting, raise_internal_errors=True)(f)
    assert torch.equal(ours(x, i), f(x, i)) and modes_of_torch() == before
