"""Any cut gives the gradients of saving everything: random programs, budgets, shares and marks."""

import flambeau_aot as aot
import torch
from flambeau_aot.partition.split import backward_only
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

STEPS = {
    "mm": lambda x, y, w: x @ w,
    "gelu": lambda x, y, w: F.gelu(x),
    "norm": lambda x, y, w: F.layer_norm(x, (6,)),
    "softmax": lambda x, y, w: torch.softmax(x, -1),
    "add": lambda x, y, w: x + y,
    "mul": lambda x, y, w: torch.tanh(x) * y,
    "view": lambda x, y, w: x.t().reshape(4, 6),
    "sum": lambda x, y, w: x - x.sum(0, keepdim=True) / 7,
    "split": lambda x, y, w: torch.cat([part.sin() for part in x.split(3, 1)][::-1], 1),
    "dropout": lambda x, y, w: F.dropout(x, 0.4),
    "swap": lambda x, y, w: (y, x),
    "write": lambda x, y, w: (x.clone().add_(y[0]), y),
}

marks = st.sampled_from(["must_recompute", "must_save", "prefer_recompute", "prefer_save"])


def program(names):
    def run(x, y, w):
        for name in names:
            made = STEPS[name](x, y, w)
            x, y = made if isinstance(made, tuple) else (made, y)
        return (x * y.cos()).sum()

    return run


def marking(chosen):
    def partition(joint, options):
        calls = [node for node in joint.graph.nodes if node.op == "call_function"]
        late = backward_only(joint)
        for place, mark in chosen:
            node = calls[place % len(calls)]
            random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            if node not in late and not random:
                node.meta["recompute"] = mark
        return aot.min_cut_partition(joint, options)

    return partition


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=9),
    st.one_of(st.none(), st.floats(0, 1)),
    st.sampled_from([0.0, 0.1, 1.0]),
    st.lists(st.tuples(st.integers(0, 60), marks), max_size=4),
)
# the mark of an operator that returns several values, and one of its values marked against it
@example(["norm", "add", "add"], None, 0.0, [(0, "must_save"), (59, "must_recompute")])
def test_gradients_are_those_of_saving_everything(names, budget, share, chosen) -> None:
    fn = program(names)
    torch.manual_seed(0)
    values = [torch.randn(4, 6), torch.randn(4, 6), torch.randn(6, 6) / 3]
    values = [item.double().requires_grad_() for item in values]

    def grads(call):
        torch.manual_seed(1)
        return torch.autograd.grad(call(*values), values, allow_unused=True)

    options = aot.Options(memory_budget=budget, recompute_share=share)
    cut = aot.aot_function(fn, aot.run_as_is, partition=marking(chosen), options=options)
    everything = aot.aot_function(fn, aot.run_as_is, partition=aot.save_all)
    for eager, one, other in zip(grads(fn), grads(cut), grads(everything), strict=True):
        assert (eager is None) == (one is None) == (other is None)
        if eager is not None:
            torch.testing.assert_close(one, eager)
            torch.testing.assert_close(other, eager)
    (entry,) = cut.compiled.values()
    calls = [node for node in entry.backward.graph.nodes if node.op == "call_function"]
    assert not [node for node in calls if "bernoulli" in str(node.target)]
    if not chosen:
        assert entry.report.recomputed_share <= share
