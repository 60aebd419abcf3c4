"""Operands of one dimension too few or too many: refused, or answered, as eager does.

The families are the operators that write to what has the shape of one operand, whatever they are
given besides, and those that name the size of an operand.
"""

import pytest
import torch
from torch.nn import functional as F

import flambeau

ROWS = torch.linspace(-1, 1, 12).reshape(3, 4)
LU = torch.linalg.lu_factor(torch.eye(3) + torch.arange(9.0).reshape(3, 3).sin())

CALLS = {
    "soft_margin_loss": lambda x: F.soft_margin_loss(ROWS, x, reduction="none"),
    "soft_margin_loss mean": lambda x: F.soft_margin_loss(ROWS, x),
    "bce weight": lambda x: F.binary_cross_entropy_with_logits(ROWS, ROWS.abs(), x),
    "bce pos_weight": lambda x: F.binary_cross_entropy_with_logits(
        ROWS, ROWS.abs(), pos_weight=x, reduction="none"
    ),
    "group_norm weight": lambda x: torch.native_group_norm(
        ROWS.reshape(1, 4, 3), x, None, 1, 4, 3, 2, 1e-5
    ),
    "slice_scatter": lambda x: torch.slice_scatter(torch.zeros(3, 4), x, 0, 0, 3),
    "select_scatter": lambda x: torch.select_scatter(torch.zeros(3, 3, 4), x, 1, 1),
    "masked_fill": lambda x: ROWS.masked_fill(ROWS > 0, x),
    "baddbmm": lambda x: torch.baddbmm(x, ROWS[None], ROWS.t()[None]),
    "batch1": lambda x: torch.bmm(x, ROWS.t()[None]),
    "linear bias": lambda x: F.linear(ROWS, torch.ones(4, 4), x),
    "linear bias of a row": lambda x: F.linear(ROWS[0], torch.ones(4, 4), x),
    "linear bias of several": lambda x: F.linear(ROWS.expand(2, 3, 4), torch.ones(4, 4), x),
    "lu_unpack": lambda x: torch.lu_unpack(LU[0].expand(*x.shape[:-2], 3, 3), LU[1]),
}
OPERANDS = {
    "()": torch.tensor(0.5),
    "4": ROWS[0],
    "3,4": ROWS,
    "1,3,4": ROWS[None],
    "2,3,4": ROWS.repeat(2, 1, 1),
    "1,4": ROWS[:1],
}


def outcome(call, x):
    try:
        found = call(x)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error).__name__
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_prims"])
@pytest.mark.parametrize("name", CALLS)
def test_ranks_are_taken_as_eager_takes_them(name, backend):
    for given, x in OPERANDS.items():
        want = outcome(CALLS[name], x)
        compiled = flambeau.compile(CALLS[name], backend=backend, dynamic=False)
        got = outcome(compiled, x.clone())
        assert (want == got) if isinstance(want, str) else not isinstance(got, str), given
        if not isinstance(want, str):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("shape", [(2, 6, 1), (2, 6, 3), (1, 6, 2, 2), (2, 6, 1, 2, 3)])
def test_a_shuffle_is_no_copy(shape):
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    for groups in (1, 2, 3, 6):

        def shuffled(x, groups=groups):
            return F.channel_shuffle(x, groups)

        compiled = flambeau.compile(shuffled, backend="aot_eager_prims", dynamic=False)
        assert torch.equal(compiled(x), shuffled(x))
