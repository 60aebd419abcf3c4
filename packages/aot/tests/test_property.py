"""Random programs: writes, views and derivatives as in eager, under every partition."""

import flambeau_aot as aot
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

VIEWS = {
    "t": lambda v: v.t(),
    "row": lambda v: v[1:].clone() if v.dim() != 2 else v[[0, 1, 2]],
    "flip": lambda v: v.unsqueeze(0).squeeze(0),
    "swap": lambda v: v.transpose(0, 1).t(),
    "whole": lambda v: v[:, :],
    "tt": lambda v: v.view(3, 3),
}
POINTWISE = {
    "sin": lambda v, w: v.sin(),
    "mul": lambda v, w: v * w,
    "add": lambda v, w: v + w.t(),
    "mm": lambda v, w: (v @ w) * 0.3,
    "soft": lambda v, w: torch.softmax(v, 0),
    "mean": lambda v, w: v - w.mean(0, keepdim=True),
    "relu": lambda v, w: v.relu(),
    "where": lambda v, w: torch.where(v > 0, v, w),
    "clone": lambda v, w: v.clone(),
    "detach": lambda v, w: v.detach(),
}
WRITES = {
    "add_": lambda v, w: v.add_(w.detach() * 0.5),
    "row_": lambda v, w: v[1].mul_(0.5),
    "t_": lambda v, w: v.t()[2].add_(1),
    "copy_": lambda v, w: v[:2, :2].copy_(w[1:, 1:]),
    "zero_": lambda v, w: v[::2].zero_(),
}

step = st.tuples(
    st.sampled_from([*VIEWS, *POINTWISE, *WRITES]), st.integers(0, 9), st.integers(0, 9)
)
programs = st.tuples(
    st.lists(step, min_size=1, max_size=8), st.lists(st.integers(0, 12), min_size=1, max_size=4)
)


def run(program, inputs):
    steps, results = program
    values = list(inputs)
    for name, one, other in steps:
        v, w = values[one % len(values)], values[other % len(values)]
        if name in VIEWS:
            values.append(VIEWS[name](v))
        elif name in POINTWISE:
            values.append(POINTWISE[name](v, w))
        else:
            WRITES[name](v, w)
    return tuple(values[index % len(values)] for index in results)


def inputs():
    generator = torch.Generator().manual_seed(7)
    leaves = [torch.randn(3, 3, generator=generator).requires_grad_() for _ in range(2)]
    plain = torch.randn(3, 3, generator=generator)
    return leaves, [leaves[0] * 1.5, leaves[1] * 0.5, plain]


def outcome(fn, program):
    """Results, written inputs, gradients and memory sharing of one run."""
    leaves, given_inputs = inputs()
    results = fn(given_inputs)
    everything = [*given_inputs, *results]
    keys = [item.untyped_storage().data_ptr() for item in everything]
    sharing = [(a, b) for a in range(len(keys)) for b in range(a) if keys[a] == keys[b]]
    weights = torch.linspace(0.5, 1.5, 9).reshape(3, 3)
    loss = sum((item * weights).sum() for item in everything if item.requires_grad)
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return (
        [item.detach().clone() for item in everything],
        grads,
        sharing,
        [item.requires_grad for item in everything],
    )


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(programs, st.booleans())
def test_random_programs(program, save_everything) -> None:
    try:
        expected = outcome(lambda values: run(program, values), program)
    except RuntimeError:
        assume(False)  # eager itself refuses this program
        return
    partition = aot.save_all if save_everything else aot.min_cut_partition
    compiled = aot.aot_function(lambda *v: run(program, v), aot.run_as_is, partition=partition)
    try:
        given_outcome = outcome(lambda values: compiled(*values), program)
    except aot.Unsupported:
        assume(False)  # refused by name
        return
    for one, other in zip(expected[0], given_outcome[0]):
        assert one.stride() == other.stride()
        torch.testing.assert_close(other, one)
    for one, other in zip(expected[1], given_outcome[1]):
        if one is None:
            assert other is None or not other.any()
        else:
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
    assert expected[2] == given_outcome[2]
    assert expected[3] == given_outcome[3]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(programs)
def test_random_programs_without_grad(program) -> None:
    def values():
        return [item.detach().clone() for item in inputs()[1]]

    with torch.no_grad():
        one, other = values(), values()
        try:
            expected = run(program, one)
        except RuntimeError:
            assume(False)  # eager itself refuses this program
            return
        try:
            given_results = aot.aot_function(lambda *v: run(program, v), aot.run_as_is)(*other)
        except aot.Unsupported:
            assume(False)  # refused by name
            return
    for left, right in zip([*one, *expected], [*other, *given_results]):
        assert left.stride() == right.stride()
        torch.testing.assert_close(right, left)
