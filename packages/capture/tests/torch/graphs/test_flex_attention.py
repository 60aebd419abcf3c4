"""`flex_attention` is a part of the graph, however its scores are changed and masked, as eager."""

import warnings

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from torch.nn.attention.flex_attention import (
    AuxRequest,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)

LENGTH, HEADS = 32, 4
BIAS = torch.linspace(0, 1, HEADS)
BY_DISTANCE = torch.linspace(-1, 1, HEADS * 2 * LENGTH).reshape(HEADS, 2 * LENGTH)
BY_PLACE = torch.linspace(-1, 1, 2 * HEADS * LENGTH**2).reshape(2, HEADS, LENGTH, LENGTH)
DOCUMENT = torch.arange(LENGTH) // 10
LENGTHS = torch.tensor([20, 30])

SCORES = {
    "as it is": lambda score, b, h, q, k: score,
    "a soft cap": lambda score, b, h, q, k: 5 * torch.tanh(score / 5),
    "by distance": lambda score, b, h, q, k: score - BIAS[h] * (q - k).abs(),
    "powers of 2": lambda score, b, h, q, k: score + (k - q) * torch.exp2(-(h + 1) * 2.0),
    "a table by head": lambda score, b, h, q, k: score + BY_DISTANCE[h, q - k + LENGTH],
    "a table of all": lambda score, b, h, q, k: score + BY_PLACE[b, h, q, k],
    "numbers among places": lambda s, b, h, q, k: s + BY_PLACE[b, 1, q, k] + BY_PLACE[0, h, q, 3],
    "causal by the score": lambda s, b, h, q, k: torch.where(q >= k, s, -float("inf")),
}


def causal(b, h, q, k):
    return q >= k


def near(b, h, q, k):
    return (q - k).abs() <= 8


def of_one_document(b, h, q, k):
    return DOCUMENT[q] == DOCUMENT[k]


def not_padded(b, h, q, k):
    return k < LENGTHS[b]


def nothing_for_some(b, h, q, k):
    return (k > q) & (q < 20)


def block_mask(mask, batches=None, heads=None, **options):
    return create_block_mask(mask, batches, heads, LENGTH, LENGTH, device="cpu", **options)


MASKS = {
    "causal": lambda: block_mask(causal),
    "a window": lambda: block_mask(and_masks(causal, near), BLOCK_SIZE=16),
    "documents": lambda: block_mask(or_masks(of_one_document, near)),
    "lengths": lambda: block_mask(not_padded, 2, HEADS),
    "rows of nothing": lambda: block_mask(nothing_for_some),
}

CALLS = {
    "scale": lambda q, k, v: flex_attention(q * 2, k, v, scale=0.3) + 1,
    "few heads of keys": lambda q, k, v: flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
    "sums": lambda q, k, v: flex_attention(q, k, v, return_lse=True),
    "sums by name": lambda q, k, v: flex_attention(q, k, v, return_aux=AuxRequest(lse=True))[1].lse,
    "by heads within places": lambda q, k, v: flex_attention(
        q.transpose(1, 2).contiguous().transpose(1, 2), k, v
    ),
    "transposed": lambda q, k, v: flex_attention(q.mT.contiguous().mT, k, v),
    "half": lambda q, k, v: flex_attention(q.bfloat16(), k.bfloat16(), v.bfloat16()),
    "double": lambda q, k, v: flex_attention(q.double(), k.double(), v.double()),
    "wider values": lambda q, k, v: flex_attention(q, k, torch.cat([v, v], -1)),
    "few queries": lambda q, k, v: flex_attention(
        q[:, :, :7], k, v, kernel_options={"BLOCK_M": 16}
    ),
    "a mask of all": lambda q, k, v: flex_attention(q, k, v).masked_fill(
        create_mask(causal, None, None, LENGTH, LENGTH, device="cpu")[..., :16], 0
    ),
}


def _is_one_graph_of_the_same(fn, *more):
    compiled = optimize("eager", nopython=True)(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(2):
            torch.manual_seed(seed)
            q, k, v = torch.randn(3, 2, HEADS, LENGTH, 16)
            expected, found = fn(q, k, v, *more), compiled(q, k, v, *more)  # it warns once
            torch.testing.assert_close(found, expected, check_stride=True)
    assert len(compiler_of(compiled).records.graphs) == 1


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", SCORES)
def test_scores_are_changed_in_the_graph(name):
    _is_one_graph_of_the_same(lambda q, k, v: flex_attention(q, k, v, score_mod=SCORES[name]))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", MASKS)
def test_masks_are_made_outside_and_inside(name, inside):
    def attend(q, k, v, given):
        mask = MASKS[name]() if inside else given
        return flex_attention(q, k, v, block_mask=mask, score_mod=SCORES["by distance"])

    _is_one_graph_of_the_same(attend, MASKS[name]())


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CALLS)
def test_every_form_of_the_call(name):
    _is_one_graph_of_the_same(CALLS[name])


def test_what_eager_refuses():
    """Derivatives on a CPU, heads that do not fit, masks of another length."""
    short = create_block_mask(causal, None, None, 16, 16, device="cpu")
    calls = (
        (lambda q, k, v: flex_attention(q, k, v), True),
        (lambda q, k, v: flex_attention(q, k[:, :3], v[:, :3]), False),
        (lambda q, k, v: flex_attention(q, k, v, block_mask=short), False),
    )
    for fn, learning in calls:
        q, k, v = torch.randn(3, 2, HEADS, LENGTH, 16, requires_grad=learning)
        errors = []
        for each in (fn, optimize("eager")(fn)):
            with pytest.raises((NotImplementedError, ValueError)) as raised:
                each(q, k, v)
            errors.append((raised.type, str(raised.value)))
        assert errors[0] == errors[1]


def test_a_derivative_by_what_changes_the_scores(monkeypatch):
    """Of devices that eager has derivatives on: the CPU, for this test, is one."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *qkv: None)
    bias = torch.randn(HEADS, requires_grad=True)
    q, k, v = (torch.randn(2, HEADS, LENGTH, 16, requires_grad=True) for _ in range(3))

    def attend(q, k, v, bias):
        at = torch.arange(LENGTH)

        def change(score, b, h, q, k):
            return score + bias[h] * (q - k)

        whole = (q @ k.mT) / 4 + bias[:, None, None] * (at[:, None] - at)
        kept = whole.masked_fill(at[:, None] < at, -float("inf"))
        mask = block_mask(causal)
        return kept.softmax(-1) @ v, flex_attention(q, k, v, score_mod=change, block_mask=mask)

    expected, found = optimize("eager", nopython=True)(attend)(q, k, v, bias)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    gradients = [torch.autograd.grad(each, (q, k, v, bias), weights) for each in (found, expected)]
    torch.testing.assert_close(*gradients)
