"""Training steps stop compiling: what changes in each is a counter, and numbers made of it."""

import math
import warnings

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of

CALLS, SETTLED, MOST = 30, 10, 3
"""RAdam is another formula at first. At most: the class's counter, the object's own, and what is
called to compute with it."""
MADE = {
    "float": lambda step: float(step),
    "root": lambda step: math.sqrt(step),
    "power": lambda step: 0.9**step,
    "root of its inverse": lambda step: 1 / (step**0.5),
    "quotient": lambda step: (1 - 0.9**step) / (1 - 0.99**step),
    "at least": lambda step: max(1.0, step / 100),
    "at most": lambda step: min(0.5, 1 / (step + 9)),
    "logarithm": lambda step: math.log(step + 1),
}
COUNTERS = {
    "a whole number": lambda: 0,
    "a number": lambda: 0.0,
    "a tensor, read": lambda: torch.tensor(0.0),
}
OPTIMIZERS = {
    "Adadelta": {}, "Adafactor": {}, "Adagrad": {}, "Adam": {}, "AdamW": {}, "Adamax": {},
    "ASGD": {}, "LBFGS": {}, "Muon": {}, "NAdam": {}, "RAdam": {}, "RMSprop": {}, "Rprop": {},
    "SGD": {"lr": 0.1, "momentum": 0.9}, "SparseAdam": {},
}  # fmt: skip


def compiled(fn, backend=None):
    return optimize(backend or (lambda module, inputs: module), raise_internal_errors=True)(fn)


def conversions(fn):
    return compiler_of(fn).cache.counters()["conversions"]


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("made", MADE)
def test_numbers_made_of_a_counter(made, counter):
    class State:
        step = COUNTERS[counter]()

    def run(x, state):
        state.step = state.step + 1
        step = state.step.item() if isinstance(state.step, torch.Tensor) else state.step
        return x * MADE[made](step)

    x, one, other = torch.randn(4), State(), State()
    fn, counts = compiled(run), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(CALLS):
            torch.testing.assert_close(fn(x, other), run(x, one), rtol=0, atol=0)
            counts.append(conversions(fn))
    assert counts[-1] == counts[SETTLED] <= MOST


def trained(name, wrap):
    """What the parameters are after some steps, and the step that was run."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(n, m, name != "Muon") for n, m in ((4, 6), (6, 3))]
    model = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
    given = [(torch.randn(5, 4),) for _ in range(CALLS)]
    if name == "SparseAdam":
        model = torch.nn.Embedding(10, 4, sparse=True)
        given = [(torch.randint(0, 10, (5,)),) for _ in range(CALLS)]
    optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name])
    step, counts = wrap(optimizer.step), []
    for args in given:
        optimizer.zero_grad()
        loss = model(*args).square().sum()
        loss.backward()

        def again(args=args):
            optimizer.zero_grad()
            loss = model(*args).square().sum()
            loss.backward()
            return loss

        step(*([again] if name == "LBFGS" else []))
        counts.append(conversions(step) if wrap is compiled else 0)
    return [p.detach().clone() for p in model.parameters()], counts


@pytest.mark.sweep(3)
@pytest.mark.filterwarnings("ignore::flambeau_capture.errors.CaptureWarning")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    assert hasattr(torch.optim, name)
    wanted, _ = trained(name, lambda step: step)
    got, counts = trained(name, compiled)
    if name != "LBFGS":  # which diverges here, in eager too, and multiplies what rounding makes
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert counts[-1] == counts[SETTLED]


def test_every_optimizer_is_among_them():
    every = {name for name, made in vars(torch.optim).items() if isinstance(made, type)}
    assert every - {"Optimizer"} == {*OPTIMIZERS}


def test_at_the_limit_it_says_where_graphs_end():
    """With a backend that takes no numbers that depend on data."""

    def backend(module, inputs):
        return module

    backend.supports_symbols = ("sizes", "integers", "floats")
    with pytest.warns(UserWarning, match=r"A graph ends in _single_tensor_adafactor \(.*: FB0002"):
        trained("Adafactor", lambda step: compiled(step, backend))
