import pytest
import torch
from flambeau_prims import PRIMS
from torch.nn import functional as F

import flambeau
from flambeau.backends.composed import CLASS_OF_TAG, classify

BACKENDS = ("aot_eager", "aot_eager_prims", "aot_nop", "eager", "inductor")


def test_every_primitive_has_a_class():
    unclassified = [
        name
        for name, prim in PRIMS.items()
        if classify(prim.overload) is None and "mutating" not in prim.tags
    ]
    assert unclassified == []


def test_what_is_no_primitive_is_left_to_aot():
    assert classify(torch.ops.aten.mm.default) is None
    assert classify(len) is None


def test_random_comes_first():
    assert CLASS_OF_TAG[0] == ("random", "random")


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference(backend):
    def fn(x, w):
        return F.softmax(x @ w, dim=-1) + F.gelu(x).mean()

    x, w = torch.randn(5, 8), torch.randn(8, 8)
    with torch.no_grad():
        torch.testing.assert_close(flambeau.compile(fn, backend=backend)(x, w), fn(x, w))


@pytest.mark.parametrize("backend", BACKENDS)
def test_training(backend):
    def loss(x, w, target):
        return F.cross_entropy(F.layer_norm(x @ w, (6,)).relu(), target)

    x, target = torch.randn(5, 8), torch.tensor([0, 1, 2, 3, 4])
    w = torch.randn(8, 6, requires_grad=True)
    loss(x, w, target).backward()
    expected, w.grad = w.grad, None
    compiled = flambeau.compile(loss, backend=backend)
    compiled(x, w, target).backward()
    torch.testing.assert_close(w.grad, expected)
    report = flambeau.report(compiled)
    assert report.fallbacks == ()
    if backend != "eager":
        assert 0 < report.saved_bytes <= report.saved_bytes_save_all


def test_the_whole_road_reports_its_kernels():
    compiled = flambeau.compile(lambda x: (x.sin() + 1).cos())
    compiled(torch.randn(1000))
    report = flambeau.report(compiled)
    assert report.kernels == 1
    assert report.fused_ops >= 3
    assert any(phase.startswith("inductor: ") for phase in report.seconds)
    assert any(phase.startswith("aot: ") for phase in report.seconds)


@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "eager"])
def test_backward_inside_a_compiled_function_is_in_its_graph(backend):
    def step(x, w):
        loss = (x @ w).tanh().sum()
        loss.backward()
        return loss.detach() * 1

    x, w = torch.randn(5, 8), torch.randn(8, 6, requires_grad=True)
    step(x, w)
    expected, w.grad = w.grad, None
    compiled = flambeau.compile(step, backend=backend)
    compiled(x, w)
    torch.testing.assert_close(w.grad, expected)
    report = flambeau.report(compiled)
    assert (report.internal_errors, report.fallbacks, report.breaks) == ((), (), ())
    assert report.graphs == 1
    compiled(x, w)
    torch.testing.assert_close(w.grad, 2 * expected)  # gradients add up, as in eager
