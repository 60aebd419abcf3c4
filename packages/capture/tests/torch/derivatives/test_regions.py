"""checkpoint, cond and while_loop: bodies that torch runs again, or not at all."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


def x(grad=False):
    return torch.randn(3, 4, requires_grad=grad)


def layers():
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.LayerNorm(8), nn.Linear(8, 4))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_of_a_module(agree, reentrant):
    def run(module, value):
        return checkpoint(module, value, use_reentrant=reentrant).sum()

    agree(run, layers(), x(True))


def test_checkpoint_of_batch_norm_counts_twice_as_in_eager(agree):
    def run(module, value):
        return checkpoint(module, value * 2, use_reentrant=False).sum()

    agree(run, nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)), x(True), graphs=None)


def test_checkpoint_saves_nothing_of_the_inside(capture, backend):
    """What autograd keeps is what a checkpoint keeps: the arguments."""
    block = nn.Sequential(*[nn.Tanh() for _ in range(5)])
    kept = []

    def run(value):
        return checkpoint(block, value, use_reentrant=False)

    for function in (run, capture(run)):
        count = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, count=count: count.append(t) or t, lambda t: t
        ):
            function(x(True))
        kept.append(len(count))
    assert kept[0] == kept[1] and len(backend) == 1


def test_checkpoint_with_keywords_structures_and_constants(agree):
    def block(pair, scale, extra=None):
        first, second = pair["a"], pair["b"]
        return {"sum": first + second * scale, "rest": (extra, None, 3)}

    def run(a, b):
        out = checkpoint(block, {"a": a, "b": b.sin()}, 2.0, extra=b, use_reentrant=False)
        return out["sum"] * out["rest"][2] + out["rest"][0]

    agree(run, x(True), x(True))


def test_checkpoint_without_gradients_is_the_function(agree, backend):
    def run(module, value):
        with torch.no_grad():
            return checkpoint(module, value, use_reentrant=False)

    agree(run, nn.Linear(4, 4), x())
    assert torch.nn.functional.linear in [node.target for node in backend.graphs[0].graph.nodes]


def test_checkpoint_that_writes_runs_in_python(capture):
    log = []

    def block(value):
        log.append("ran")
        return value.sin()

    compiled = capture(lambda a: checkpoint(block, a * 2, use_reentrant=False) + 1)
    given = x(True)
    compiled(given).sum().backward()
    assert log == ["ran", "ran"]  # once more in backward, as in eager


def test_cond_takes_either_side(agree):
    def run(value, shift):
        return torch.cond(value.sum() > 0, lambda t: t + shift, lambda t: t * 2, (value,))

    agree(run, x().abs(), x())
    agree(run, -x().abs(), x())
    agree(run, x(True), x(True))


@pytest.mark.parametrize("flag", [True, False])
def test_cond_of_a_python_bool_and_of_structures(capture, backend, flag):
    def run(value, cond):
        pair = cond(flag, lambda t: (t, t + 1), lambda t: (t - 1, t), (value,))
        nested = cond(
            value.sum() > 0,
            lambda: {
                "a": pair[0] * 2,
                "b": cond(pair[1].max() > 1, torch.sin, torch.cos, (value,)),
            },
            lambda: {"a": pair[1], "b": value},
            (),
        )
        return nested["a"] + nested["b"]

    compiled = capture(lambda value: run(value, torch.cond))
    for _ in range(4):
        value = x()
        expected = run(value, lambda p, yes, no, operands: (yes if p else no)(*operands))
        assert torch.equal(compiled(value), expected)
    assert len(backend) == 1


def test_one_graph_serves_both_sides(capture, backend):
    compiled = capture(lambda t: torch.cond(t.sum() > 0, torch.sin, torch.cos, (t,)))
    for given in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(compiled(given), given.sin() if given.sum() > 0 else given.cos())
    assert len(backend) == 1


def test_while_loop(agree):
    def run(value, limit):
        return while_loop(
            lambda i, t: i < limit, lambda i, t: (i + 1, t * 2), (torch.tensor(0), value)
        )

    agree(run, x(), torch.tensor(3))
    agree(run, x(), torch.tensor(0))


def test_branches_with_side_effects_break(capture):
    """The program of a branch that writes is not run ahead of its time."""
    log = []

    def yes(t):
        log.append(1)
        return t + 1

    def run(t):
        doubled = t * 2
        if doubled.sum() > 0:
            return yes(doubled)
        return doubled

    assert torch.equal(capture(run)(torch.ones(2)), torch.full((2,), 3.0))
    assert log == [1]


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_checkpointed_segments(agree, segments):
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)) for _ in range(5)])

    def fn(layers, x):
        given = layers if segments > 1 else list(layers)
        return checkpoint_sequential(given, segments, x, use_reentrant=False).sin()

    agree(fn, layers, torch.randn(2, 4, requires_grad=True))
