"""Numbers of small tensors that Python needs are read before the graph: eager's, in few graphs."""

import warnings
from itertools import product
from random import Random

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

MADE = {
    "float": lambda: torch.tensor(0.0),
    "double": lambda: torch.tensor(0.0, dtype=torch.float64),
    "half": lambda: torch.tensor(0.0, dtype=torch.bfloat16),
    "one element": lambda: torch.zeros(1),
    "integer": lambda: torch.tensor(0),
    "short": lambda: torch.tensor(0, dtype=torch.int32),
}
MOVES = {
    "in place": lambda s: s.step.add_(1),
    "operator": lambda s: s.__setattr__("step", s.step.__iadd__(1)),
    "anew": lambda s: setattr(s, "step", s.step + 1),
    "list": lambda s: torch._foreach_add_([s.other, s.step], 1),
    "list of its own": lambda s: torch._foreach_add_([s.step], torch.tensor(1)),
    "view": lambda s: s.step.view(-1).add_(1),
    "item": lambda s: s.step.view(-1).__setitem__(0, s.step.view(-1)[0] + 1),
    "filled": lambda s: s.step.copy_(s.step + 1),
    "out": lambda s: torch.add(s.step, 1, out=s.step),
    "data": lambda s: s.step.data.add_(1),
    "twice": lambda s: (s.step.mul_(2), s.step.sub_(s.other)),
    "elsewhere": lambda s: s.alias.add_(1),
}
USES = {
    "power": lambda n: 0.9**n,
    "logarithm": lambda n: __import__("math").log(n + 1),
    "branch": lambda n: 2.0 if n > 6 else 0.5,
    "correction": lambda n: (1 - 0.99**n) ** 0.5 / (1 - 0.9**n) if n else 1.0,
    "remainder": lambda n: 3.0 if n % 3 == 0 else n**0.5,
}


class State:
    def __init__(self, made):
        self.step, self.other = made(), made()
        self.alias = self.step.view_as(self.step)
        self.kept = None


class Layer(torch.nn.Module):
    """The same as buffers, which are attributes of the graph."""

    def __init__(self, made):
        super().__init__()
        self.register_buffer("step", made())
        self.register_buffer("other", made())
        self.alias = self.step.view_as(self.step)
        self.kept = None


HELD = {"object": State, "buffer": Layer}


def steps(wrap, held, make, move, use, again):
    """What some calls return and leave."""
    state, rows = HELD[held](MADE[make]), []

    def run(x):
        if again:
            before = USES["power"](state.step.item() + 1.5)
        MOVES[move](state)
        number = state.step.item()
        state.kept = USES[use](number), number
        x = x * state.kept[0]
        return (x * before if again else x), number, state.kept[0]

    run = wrap(run)
    for _ in range(12):
        made = run(torch.ones(3))
        rows.append(
            (made[0].clone(), *made[1:], state.kept, state.step.clone(), state.other.clone())
        )
    return rows, run


@pytest.mark.sweep(24)
@pytest.mark.parametrize(("held", "make", "move", "use"), list(product(HELD, MADE, MOVES, USES)))
def test_numbers_are_as_in_eager(held, make, move, use):
    again = Random(f"{make} {move} {use}").random() < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, run = steps(lambda fn: optimize(lambda m, i: m, raise_internal_errors=True)(fn),
                          held, make, move, use, again)  # fmt: skip
        theirs, _ = steps(lambda fn: fn, held, make, move, use, again)
    for number, (one, other) in enumerate(zip(ours, theirs)):
        assert repr(one) == repr(other), number
    assert compiler_of(run).cache.counters()["limit_reached"] == 0
