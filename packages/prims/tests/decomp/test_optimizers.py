"""Optimizer steps through the table: fused kernels and lists of tensors, against eager."""

import pytest
import torch
from flambeau_prims import decompositions
from flambeau_prims.sweep.watch import WithWriting, watching

TABLE = WithWriting(decompositions())
O = torch.optim

OPTIMIZERS = {
    "adam_fused": lambda p: O.Adam(p, lr=0.1, weight_decay=0.01, amsgrad=True, fused=True),
    "adam_maximize": lambda p: O.Adam(p, maximize=True, fused=True),
    "adamw_fused": lambda p: O.AdamW(p, lr=torch.tensor(0.1), fused=True),
    "sgd_fused": lambda p: O.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True
    ),
    "sgd_plain": lambda p: O.SGD(p, lr=0.1, fused=True),
    "adagrad_fused": lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.1, fused=True),
    "adam": lambda p: O.Adam(p, lr=0.1, weight_decay=0.01, amsgrad=True, foreach=True),
    "sgd": lambda p: O.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, foreach=True),
    "rmsprop": lambda p: O.RMSprop(p, foreach=True, momentum=0.1, centered=True),
    "adadelta": lambda p: O.Adadelta(p, foreach=True),
    "adagrad": lambda p: O.Adagrad(p, foreach=True),
    "adamax": lambda p: O.Adamax(p, foreach=True),
    "nadam": lambda p: O.NAdam(p, foreach=True),
    "radam": lambda p: O.RAdam(p, foreach=True),
    "asgd": lambda p: O.ASGD(p, foreach=True),
    "rprop": lambda p: O.Rprop(p, foreach=True),
}
# reading the number of steps, and the profiler's marks
BESIDE = ("aten._local_scalar_dense", "aten.promote_types", "profiler.")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_steps(name, dtype):
    found = []
    for through in (False, True):
        generator = torch.Generator().manual_seed(0)
        params = [
            torch.nn.Parameter(torch.randn(shape, dtype=dtype, generator=generator))
            for shape in ((3, 4), (5,))
        ]
        optimizer = OPTIMIZERS[name](params)
        for _ in range(3):
            for p in params:
                p.grad = torch.randn(p.shape, dtype=dtype, generator=generator)
            if not through:
                optimizer.step()
                continue
            with watching(TABLE) as seen:
                optimizer.step()
            assert [op for op in seen.left if not op.startswith(BESIDE)] == []
            assert seen.prims and not seen.broken
        found.append(params)
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {}
    for ours, eager in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, eager, **close)


@pytest.mark.parametrize("op", [torch._fused_adam_, torch._fused_adamw_])
def test_scaled_gradients_and_infinities(op):
    def step(through, found_inf):
        torch.manual_seed(0)
        p, g, m = (torch.randn(4) for _ in range(3))
        v, count = torch.rand(4), torch.tensor(3.0)
        with watching(TABLE if through else {}):
            op(
                [p], [g], [m], [v], [], [count], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.1,
                eps=1e-8, amsgrad=False, maximize=False, grad_scale=torch.tensor(4.0),
                found_inf=torch.tensor(found_inf),
            )  # fmt: skip
        return p, m, v

    before = step(False, 1.0)
    for a, b in zip(step(True, 1.0), before, strict=True):
        assert torch.equal(a, b)  # nothing moved
    moved = step(True, 0.0)
    torch.testing.assert_close(moved, step(False, 0.0))
    assert not torch.equal(moved[0], before[0])


def _lists(dtype=torch.float32):
    g = torch.Generator().manual_seed(1)
    return [torch.rand(n, dtype=dtype, generator=g) + 0.1 for n in (3, 1, 4)]


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: torch._foreach_add(a, b, alpha=2),
        lambda a, b: torch._foreach_add(a, 1.5),
        lambda a, b: torch._foreach_sub(a, [1.0, 2.0, 3.0]),
        lambda a, b: torch._foreach_mul(a, torch.tensor(2.0)),
        lambda a, b: torch._foreach_div(a, b),
        lambda a, b: torch._foreach_pow(a, b),
        lambda a, b: torch._foreach_pow(2.0, a),
        lambda a, b: torch._foreach_maximum(a, 0.5),
        lambda a, b: torch._foreach_clamp_max(a, b),
        lambda a, b: torch._foreach_addcmul(a, b, a, 0.5),
        lambda a, b: torch._foreach_addcdiv(a, b, a, [1.0, 2.0, 3.0]),
        lambda a, b: torch._foreach_lerp(a, b, 0.3),
        lambda a, b: torch._foreach_lerp(a, b, a),
        lambda a, b: torch._foreach_norm(a, 1),
        lambda a, b: torch._foreach_max(a),
        lambda a, b: torch._foreach_exp(a),
        lambda a, b: torch._foreach_lgamma(a),
        lambda a, b: torch._foreach_sqrt(a),
    ],
)
def test_lists(call):
    a = _lists()
    b = [x.cos() + 1 for x in a]
    expected = call(a, b)
    with watching(TABLE) as seen:
        got = call(a, b)
    torch.testing.assert_close(list(got), list(expected))
    assert not seen.left and not seen.broken
