"""An operator that refuses its data when a compiled graph runs: whatever the program did before
that line has happened as in eager, and the error is eager's. Generated: writes by what they write
to, times operators by what they refuse.
"""

import pytest
import torch
from torch import nn

import flambeau

WRITES = {
    "argument": "x.add_(1)",
    "view": "x[1:].mul_(2)",
    "attribute": "m.calls += 1",
    "list": "log.append(x.sum())",
    "buffer": "m.seen.copy_(x.sum())",
    "statistics": "x = m.norm(x)",
    "parameter": "with torch.no_grad():\n        m.norm.weight.mul_(3)",
    "several": "x.add_(1); m.calls += 1; log.append('start'); x = m.norm(x); m.seen += 1",
}
REFUSED = {
    "index": "m.table(i).sum()",
    "gather": "x.gather(0, i.reshape(1, -1).expand(1, 3)).sum()",
    "singular": "torch.linalg.cholesky(-x.T @ x * (i.max() > 3)).sum()",
    "caught": "0\n    try:\n        y = m.table(i).sum()\n    except IndexError:\n"
    "        log.append('caught'); y = 0",
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.table = nn.BatchNorm1d(3), nn.Embedding(3, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.calls = 0


def played(program, wrap):
    torch.manual_seed(0)
    model, log, errors = Model(), [], []
    step, states = wrap(program), []
    for index in (1, 7, 2, 9):
        x = torch.arange(12.0).reshape(4, 3)
        try:
            step(model, x, torch.tensor([index]), log)
        except (IndexError, RuntimeError) as error:
            errors.append(type(error))
        states.append([x.tolist(), model.calls, *(t.tolist() for t in model.state_dict().values())])
    return states, [str(item) for item in log], errors


@pytest.mark.sweep(2)
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("refused", REFUSED)
def test_what_came_before_the_error_has_happened(refused, backend):
    for name, write in (
        WRITES.items() if backend == "aot_eager" else [("several", WRITES["several"])]
    ):
        space = {"torch": torch}
        body = f"    {write}\n    y = {REFUSED[refused]}\n    return y + x.sum()"
        exec(f"def f(m, x, i, log):\n{body}", space)
        expected = played(space["f"], lambda f: f)
        ours = played(space["f"], lambda f: flambeau.compile(f, backend=backend))
        assert ours[1:] == expected[1:], name
        flat = [torch.tensor([*flatten(states)]) for states in (ours[0], expected[0])]
        torch.testing.assert_close(*flat)


def flatten(value):
    for item in value if isinstance(value, list) else [value]:
        yield from flatten(item) if isinstance(item, list) else [float(item)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("write", ["x.add_(1)", "x = torch.dropout(x, 0.5, True)"])
def test_what_is_lost_is_on_record(write, backend):
    """A call that may have written, or has drawn eager's numbers: the frame is not run again."""
    if (backend, write) == ("aot_eager", "x.add_(1)"):
        return  # writes last
    space = {}
    exec(f"import torch\ndef f(x, i, log):\n    log.append(1); {write}; return x[i]", space)
    ours, log = flambeau.compile(space["f"], backend=backend), []
    with pytest.raises(IndexError):
        ours(torch.zeros(3), torch.tensor([5]), log)
    assert not log
    assert "is lost" in str(flambeau.report(ours).skipped)
