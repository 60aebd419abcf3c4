"""Operators that torch computes by Python forms of its own where sizes are open.

In: each such operator, from torch's registry, at a first size and at two that are left open. Out:
eager's values, gradients, strides, aliases, writes and random state. Invariant: an operator that a
newer torch adds to the registry fails here until it has a case or a reason.
"""

from functools import partial

import pytest
import torch
import torch._decomp  # registers the forms
import torch.fx.experimental.symbolic_shapes  # as above
import torch.nn.functional as F
from torch import randn

import flambeau


def image(n, channels_last=False):
    made = randn(2, 3, n + 3, 5)
    return made.to(memory_format=torch.channels_last) if channels_last else made


def statistics(n):
    return randn(n, 3), torch.zeros(3), torch.ones(3)


def classes(n):
    return randn(n, 4), torch.zeros(n, dtype=torch.long)


def resized(mode, **options):
    return lambda x: F.interpolate(x, mode=mode, **options)


#: by operator: functions and what they are given at a size
CASES = {
    "broadcast_tensors": [(torch.broadcast_tensors, lambda n: (randn(n, 1), randn(n)))],
    "dropout": [
        (partial(torch.dropout, p=p, train=train), lambda n: (randn(n, 2),))
        for p, train in ((0.5, False), (0.0, True), (0.5, True))
    ] + [
        (lambda x: F.dropout(x, 0.5, False), lambda n: (randn(n, 2),)),
        (lambda x: (F.dropout(x, 0.5, False).add_(1), x * 1)[1], lambda n: (randn(n, 2),)),
    ],
    "native_dropout": [
        (lambda x: torch.native_dropout(x, 0.5, False), lambda n: (randn(n, 2),)),
        (lambda x: torch.native_dropout(x, 0.5, True), lambda n: (randn(n, 2),)),
    ],
    "hardshrink": [(F.hardshrink, lambda n: (torch.linspace(-1, 1, n + 4),))],
    "softshrink": [(F.softshrink, lambda n: (torch.linspace(-1, 1, n + 4),))],
    "stft": [(lambda x: torch.stft(x, 8, return_complex=True), lambda n: (randn(2, 16 * n),))],
    "istft": [
        (
            lambda x: torch.istft(torch.stft(x, 8, return_complex=True), 8),
            lambda n: (randn(16 * n),),
        )
    ],
    "matmul": [
        (torch.matmul, lambda n: (randn(2, n, 4), randn(4, 5))),
        (torch.matmul, lambda n: (randn(n, 4), randn(4))),
        (torch.matmul, lambda n: (randn(n, 3, 4, 5), randn(3, 5, 6))),
        (lambda x, y: x.transpose(1, 2) @ y, lambda n: (randn(2, 4, n), randn(4, 5))),
        (torch.matmul, lambda n: (randn(4), randn(n, 4, 5))),
    ],
    "one_hot": [(lambda x: F.one_hot(x, 7), lambda n: (torch.arange(n),))],
    "pad_sequence": [
        (
            lambda x, y: torch.nn.utils.rnn.pad_sequence([x, y]),
            lambda n: (randn(n, 2), randn(n + 2, 2)),
        )
    ],
    "tensor_split": [
        (lambda x: torch.tensor_split(x, 3), lambda n: (randn(n + 3, 2),)),
        (lambda x: torch.tensor_split(x, (1, 2)), lambda n: (randn(n + 3, 2),)),
    ],
    "unsafe_chunk": [(lambda x: torch.unsafe_chunk(x, 3), lambda n: (randn(n + 3, 2),))],
    "native_batch_norm": [
        (lambda x, m, v: F.batch_norm(x, m, v, training=True), statistics),
    ],
    "multi_margin_loss": [(lambda x, t: F.multi_margin_loss(x, t, reduction="none"), classes)],
    "multilabel_margin_loss_forward": [
        (
            lambda x, t: F.multilabel_margin_loss(x, t, reduction="none"),
            lambda n: (randn(n, 4), torch.zeros(n, 4, dtype=torch.long)),
        )
    ],
    **{
        f"{name}{rank}d": [
            (resized(mode, scale_factor=2.0), made),
            (resized(mode, scale_factor=1.2), made),
            (resized(mode, size=(8, 5, 8)[:rank]), made),
        ]
        for name, mode in (
            ("upsample_nearest", "nearest"),
            ("_upsample_nearest_exact", "nearest-exact"),
        )
        for rank, made in (
            (1, lambda n: (randn(2, 3, n + 3),)),
            (2, lambda n: (image(n, True),)),
            (3, lambda n: (randn(2, 3, n + 3, 5, 4),)),
        )
    },
    "upsample_linear1d": [(resized("linear", size=6), lambda n: (randn(2, 3, n + 3),))],
    "upsample_bilinear2d": [
        (resized("bilinear", scale_factor=2.0), lambda n: (image(n),)),
        (resized("bilinear", scale_factor=2.0), lambda n: (image(n, True),)),
    ],
    "upsample_bicubic2d": [(resized("bicubic", scale_factor=2.0), lambda n: (image(n),))],
    "upsample_trilinear3d": [
        (resized("trilinear", scale_factor=2.0), lambda n: (randn(2, 3, n + 3, 5, 4),))
    ],
    "_upsample_bilinear2d_aa": [
        (resized("bilinear", scale_factor=0.5, antialias=True), lambda n: (image(n),))
    ],
    "_upsample_bicubic2d_aa": [
        (resized("bicubic", scale_factor=0.5, antialias=True), lambda n: (image(n),))
    ],
}  # fmt: skip
ELSEWHERE = {
    **dict.fromkeys(
        ("lstm", "gru", "rnn_tanh", "rnn_relu"), "integration_tests/models/test_recurrent.py"
    ),
    "cudnn_batch_norm": "wants a GPU",
    "empty": "an out= form of what has no values",
    "_upsample_lanczos2d_aa": "no function of torch calls it",
}


def registered():
    """Operators with a Python form that is computed in place of torch's own."""
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            kernels = [
                str(k) for each in packet.overloads() for k in getattr(packet, each).py_kernels
            ]
            if any("CompositeImplicit" in k or "Autograd" in k for k in kernels):
                yield name


def test_every_operator_of_the_registry_has_a_case():
    assert {*registered()} <= {*CASES, *ELSEWHERE}


def observed(function, made, size, grad):
    torch.manual_seed(size)
    arguments = list(made(size))
    leaf = arguments[0]
    if grad:
        leaf.requires_grad_()
        arguments[0] = leaf.clone(memory_format=torch.preserve_format)
    found = function(*arguments)
    results = [found] if isinstance(found, torch.Tensor) else list(found)
    memory = [each.untyped_storage().data_ptr() for each in (*results, *arguments)]
    facts = [
        (tuple(each.shape), each.stride(), each.dtype, each.requires_grad, memory.index(memory[at]))
        for at, each in enumerate(results)
    ]
    values = [each.detach().clone() for each in results]
    gradient = None
    if any(each.requires_grad for each in results):
        torch.cat(
            [
                torch.view_as_real(e).flatten() if e.is_complex() else e.flatten()
                for e in results
                if e.requires_grad
            ]
        ).sum().backward()
        gradient = leaf.grad
    return facts, [*values, gradient, *(each.detach() for each in arguments), torch.rand(1)]


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", CASES)
def test_at_open_sizes(name):
    for function, made in CASES[name]:
        for grad in (False, made(3)[0].is_floating_point()):
            compiled = flambeau.compile(function, backend="aot_eager")
            for size in (3, 5, 6):
                facts, values = observed(compiled, made, size, grad)
                wanted_facts, wanted = observed(function, made, size, grad)
                assert facts == wanted_facts, (size, grad)
                torch.testing.assert_close(values, wanted, equal_nan=True)
            report = flambeau.report(compiled)
            assert not report.fallbacks
