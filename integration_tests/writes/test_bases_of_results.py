"""What a result says of the tensor that it is a view of: `_base`, with its form, is eager's.

By default each operation with one kind of input; with FLAMBEAU_SWEEPS=1 with all of them.
"""

import itertools
import os

import pytest
import torch
from torch.nn import functional as F

import flambeau

OPERATIONS = {
    "identity": lambda x: x,
    "view": lambda x: x.view(4, 3),
    "dtype view": lambda x: x.view(torch.int32),
    "t": lambda x: x.t(),
    "mT": lambda x: x.mT,
    "slice": lambda x: x[1:],
    "index": lambda x: x[0],
    "narrow": lambda x: x.narrow(0, 1, 1),
    "expand": lambda x: x[:1].expand(3, 4),
    "broadcast": lambda x: torch.broadcast_tensors(x, x[:1])[1],
    "unbind": lambda x: x.unbind(0)[1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "split": lambda x: torch.split(x, 2, 1)[1],
    "tensor_split": lambda x: x.tensor_split(2),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "diagonal": lambda x: x.diagonal(),
    "as_strided": lambda x: x.as_strided((2, 2), (1, 2)),
    "detach": lambda x: x.detach(),
    "alias": lambda x: torch.ops.aten.alias(x),
    "two steps": lambda x: x.unsqueeze(0).squeeze(0),
    "complex": lambda x: torch.view_as_real(torch.view_as_complex(x.view(3, 2, 2))),
    "contiguous": lambda x: (x.contiguous(), x.t().contiguous()),
    "reshape": lambda x: (x.reshape(2, 6), x.t().reshape(2, 6)),
    "to": lambda x: x.to(torch.float32),
    "no padding": lambda x: F.pad(x, (0, 0)),
    "no dropout": lambda x: F.dropout(x, 0.0),
    "the input and a view": lambda x: (x, x.t()),
    "written": lambda x: x.add_(1),
    "view of what is written": lambda x: x.add_(1).view(-1),
    "view of what is new": lambda x: (x * 2).t(),
    "two views of what is new": lambda x: ((y := x * 2).view(-1), y.t()),
    "it and its view": lambda x: (y := x * 2, y[1:]),
    "view of a copy": lambda x: x.clone().view(-1),
    "new": lambda x: x * 2,
    "product": lambda x: x @ x.t(),
    "linear": lambda x: F.linear(x[None], torch.ones(2, 4)),
    "convolution": lambda x: F.conv1d(x[None], torch.ones(2, 3, 1)),
    "einsum": lambda x: torch.einsum("ij,kj->ki", x, x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "norm": lambda x: F.layer_norm(x, (4,)),
    "sort": lambda x: x.sort(1),
    "max": lambda x: x.max(1),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij"),
}


def plain():
    return torch.arange(12.0).reshape(3, 4)


INPUTS = {
    "a view": plain,
    "whole": lambda: torch.arange(12.0).reshape(3, 4).clone(),
    "part": lambda: torch.arange(24.0).reshape(2, 3, 4)[1],
    "with a history": lambda: plain().requires_grad_() * 1,
}
WHOLE = os.environ.get("FLAMBEAU_SWEEPS") == "1"
CASES = [
    (operation, given)
    for (at, operation), (place, given) in itertools.product(
        enumerate(OPERATIONS), enumerate(INPUTS)
    )
    if WHOLE or at % len(INPUTS) == place
]


def told(results, x):
    """Of each tensor: whether it has a base, which, and that base's form."""
    made = [results] if isinstance(results, torch.Tensor) else list(results)
    found = []
    for each in made:
        base = each._base
        form = base is not None and (tuple(base.shape), base.stride(), base.storage_offset())
        known = [base is x, base is not None and base is x._base]
        shared = [base is not None and (base is other or base is other._base) for other in made]
        found.append((base is None, form, known, shared, each._version, each.is_leaf))
    return found


@pytest.mark.parametrize(("operation", "given"), CASES)
def test_the_base_of_a_result_is_eagers(operation, given):
    fn = OPERATIONS[operation]
    compiled = flambeau.compile(fn, backend="aot_eager", fullgraph=True)
    expected, found = (told(run(x), x) for run in (fn, compiled) for x in [INPUTS[given]()])
    assert found == expected
