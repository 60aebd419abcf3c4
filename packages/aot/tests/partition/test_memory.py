"""Estimated memory against what is allocated."""

import weakref

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.partition.memory import OwnedStorage, peak_bytes
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Bytes of the storages made inside the block: alive now, and at the worst moment."""

    def __init__(self):
        super().__init__()
        self.alive = self.peak = 0
        self.known = weakref.WeakSet()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, torch.Tensor):
                self.known.add(value.untyped_storage())
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.untyped_storage() not in self.known:
                storage = value.untyped_storage()
                self.known.add(storage)
                self.alive += storage.nbytes()
                self.peak = max(self.peak, self.alive)
                weakref.finalize(storage, self.freed, storage.nbytes())
        return result

    def freed(self, size):
        self.alive -= size


def mlp(x, w):
    for _ in range(3):
        x = F.gelu(F.layer_norm(x @ w, (32,))).view(4, 8, 32).transpose(0, 1).reshape(32, 32)
    return x.square().mean()


def attention(x, w):
    q = (x @ w).view(4, 8, 32)
    return (torch.softmax(q @ q.transpose(1, 2), -1) @ q).relu().sum()


@pytest.mark.parametrize("fn", [mlp, attention])
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_estimates_are_what_is_allocated(fn, partition) -> None:
    x, w = torch.randn(32, 32, requires_grad=True), (torch.randn(32, 32) / 6).requires_grad_()
    compiled = aot.aot_function(fn, aot.run_as_is, partition=partition)
    torch.autograd.grad(compiled(x, w), (x, w))
    (entry,) = compiled.compiled.values()
    report = entry.report
    with Allocations() as forward:
        result = compiled(x, w)
    assert forward.peak == report.forward_peak_bytes
    assert forward.alive == report.saved_bytes + result.nbytes
    one = torch.ones_like(result)
    before = forward.alive
    with forward:
        forward.peak = 0
        grads = torch.autograd.grad(result, (x, w), one)
    assert forward.peak - (before - report.saved_bytes) == report.backward_peak_bytes
    del result
    assert forward.alive == sum(grad.nbytes for grad in grads)


def test_views_live_as_long_as_what_they_view() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    aten = torch.ops.aten
    value = torch.empty(1024)
    x.meta["val"] = value
    made = graph.call_function(aten.sin.default, (x,))
    view = graph.call_function(aten.view.default, (made, [32, 32]))
    other = graph.call_function(aten.cos.default, (x,))
    end = graph.call_function(aten.sum.default, (view,))
    for node in (made, other):
        node.meta["val"] = value
    view.meta["val"] = value.view(32, 32)
    end.meta["val"] = torch.empty(())
    graph.output((end,))
    assert peak_bytes(graph) == 2 * 4096
    assert peak_bytes(graph, {0: OwnedStorage(0, 4096)}) == 3 * 4096
