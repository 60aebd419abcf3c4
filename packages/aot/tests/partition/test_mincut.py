"""The minimum cut: what is saved, what it weighs, and that gradients do not change."""

import flambeau_aot as aot
import torch
from flambeau_aot.partition.cost import classify


def saved_names(entry: aot.Compiled) -> list[str]:
    return [str(node.target) for node in entry.halves.saved_nodes]


def test_a_pointwise_chain_saves_what_it_begins_with_only(same_as_eager) -> None:
    x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    entry = same_as_eager(lambda a, b: (a @ b).sin().exp().tanh().cos(), x, w, exact=False)
    assert sorted(item.kind for item in entry.halves.saved) == ["input", "input", "output"]
    assert "aten.mm.default" in saved_names(entry)
    assert entry.report.saved_bytes < entry.report.saved_bytes_save_all
    assert len(entry.report.recomputed) >= 2


def test_a_result_that_eager_keeps_is_read_again(same_as_eager) -> None:
    """It is there anyway, as the leaf is that it could be computed from."""
    x = torch.randn(8, 64, requires_grad=True)
    entry = same_as_eager(lambda a: a.sin().softmax(-1), x, exact=False)
    assert "aten._softmax.default" in saved_names(entry)
    assert "aten._softmax.default" not in entry.report.recomputed
    entry = same_as_eager(lambda a: (a.softmax(-1),) * 2, x, exact=False)
    assert saved_names(entry) == ["aten._softmax.default"]


def test_a_result_that_eager_does_not_keep_is_let_go(same_as_eager) -> None:
    x = torch.randn(8, 64, requires_grad=True)
    entry = same_as_eager(lambda a: (a * 3).sin(), x, exact=False)
    assert "aten.sin.default" not in saved_names(entry)
    entry = same_as_eager(lambda a: a.exp().square().sum(), x, exact=False)
    assert saved_names(entry) == ["aten.exp.default"]


def test_under_a_budget_a_result_takes_what_it_takes() -> None:
    def fn(x):
        return x.sin().exp()

    x = torch.randn(64, 64, requires_grad=True)
    joint = aot.export_joint(fn, [x]).joint
    for budget, expected in ((None, ["arg", "exp"]), (0, ["arg"]), (0.5, ["arg"])):
        saved = aot.min_cut_partition(joint, aot.Options(memory_budget=budget))
        assert [node.name.split("_")[0] for node in saved] == expected, budget


def test_matmul_and_random_operators_run_once(same_as_eager) -> None:
    def fn(x, w):
        y = torch.nn.functional.dropout(x @ w, 0.4)
        return torch.softmax(y.relu() @ w, -1).sin()

    entry = same_as_eager(
        fn, torch.randn(6, 6, requires_grad=True), torch.randn(6, 6, requires_grad=True)
    )
    again = set(entry.report.recomputed)
    assert not {item for item in again if "mm" in item or "bernoulli" in item}
    drawn = [n for n in entry.backward.graph.nodes if classify(n.target) == "random"]
    assert drawn == []


def test_bytes_reported_are_the_bytes_autograd_holds() -> None:
    def fn(x, w):
        return torch.nn.functional.gelu(x @ w).softmax(-1) @ w

    x, w = torch.randn(16, 8), torch.randn(8, 8, requires_grad=True)
    for partition in (aot.min_cut_partition, aot.save_all):
        compiled = aot.aot_function(fn, aot.run_as_is, partition=partition)
        held = compiled(x, w).grad_fn.saved_tensors
        (entry,) = compiled.compiled.values()
        inputs = {x.untyped_storage().data_ptr(), w.untyped_storage().data_ptr()}
        own = [t for t in held if t.untyped_storage().data_ptr() not in inputs]
        assert sum(t.nbytes for t in own) == entry.report.saved_bytes
        assert len(own) == entry.report.saved_tensors
    assert entry.report.saved_bytes == entry.report.saved_bytes_save_all


def test_min_cut_never_saves_more_than_everything() -> None:
    def fn(x, w):
        for _ in range(3):
            x = torch.nn.functional.layer_norm((x @ w).sigmoid() * x, (8,)) + x
        return x

    x, w = torch.randn(16, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    compiled = aot.aot_function(fn, aot.run_as_is)
    compiled(x, w)
    (entry,) = compiled.compiled.values()
    assert 0 < entry.report.saved_bytes < entry.report.saved_bytes_save_all


def test_a_written_input_is_saved_as_a_copy(same_as_eager) -> None:
    def fn(x, w):
        y = (x * w).sum(0)
        x.add_(1)
        return y

    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)

    def legal(a, b):
        y = (a.clone() * b).sum(0)
        a.add_(1)
        return y

    entry = same_as_eager(legal, x, w)
    (saved,) = entry.halves.saved
    assert saved.kind == "output"


def test_callers_classes_are_used() -> None:
    def fn(x):
        return x.sin().exp()

    x = torch.randn(4, requires_grad=True)
    options = aot.Options(classify=lambda op: "leaf")
    compiled = aot.aot_function(fn, aot.run_as_is, options=options)
    compiled(x)
    (entry,) = compiled.compiled.values()
    assert entry.report.recomputed == ()


def test_the_work_of_a_cut_grows_with_the_graph(monkeypatch) -> None:
    """A bound on steps, not on time: edges of the network, and cuts made, by size of the graph."""
    from flambeau_aot.partition import mincut

    found = []

    def counting(edges, source, sink):
        edges = list(edges)
        found[-1].append(len(edges))
        return flow(edges, source, sink)

    flow = mincut.minimum_cut
    monkeypatch.setattr(mincut, "minimum_cut", counting)

    def fn(x, w, depth):
        for _ in range(depth):
            x = torch.nn.functional.layer_norm((x @ w).sigmoid() * x, (8,)) + x
        return x

    nodes = []
    for depth in (10, 20, 40):
        found.append([])
        x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
        joint = aot.export_joint(lambda x, w, depth=depth: fn(x, w, depth), [x, w]).joint
        aot.min_cut_partition(joint)
        nodes.append(len(joint.graph.nodes))
    assert all(len(cuts) == 1 for cuts in found)
    for count, (edges,) in zip(nodes, found, strict=True):
        assert edges <= 4 * count
