"""An operation that raises only when it has its data: the frame runs as it is, so that the program
raises, or handles, what it does without capture, after the same effects, from its own line.
Generated: operations by what they refuse, in each place of a program with and without handlers.
"""

import sys
import traceback

import pytest
import torch
from flambeau_capture import optimize

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
