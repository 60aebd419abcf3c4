"""`flex_attention` is one break, however its scores are changed and masked, and gives eager's."""

import warnings

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BIAS = torch.tensor([0.5, 0.25])


def causal(batch, head, query, key):
    return query >= key


def capped(score, batch, head, query, key):
    return 5 * torch.tanh(score / 5)


def sloped(score, batch, head, query, key):
    return score - BIAS[head] * (query - key).abs()


def mask():
    return create_block_mask(causal, None, None, 32, 32, device="cpu")


def breaks(fn):
    return compiler_of(fn).records.breaks


SPELLINGS = {
    "plain": dict,
    "scale": lambda: {"scale": 0.3},
    "score": lambda: {"score_mod": capped},
    "tensor from outside": lambda: {"score_mod": sloped},
    "mask": lambda: {"block_mask": mask()},
    "both": lambda: {"score_mod": sloped, "block_mask": mask()},
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_attention_is_one_break(spelling, inside):
    made = SPELLINGS[spelling]

    def attend(q, k, v, given):
        return flex_attention(q * 2, k, v, **(made() if inside else given)) + 1

    graphs = []
    fn = optimize(lambda m, i: graphs.append(m) or m, raise_internal_errors=True)(attend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            q, k, v = torch.randn(3, 2, 2, 32, 16)
            given = made()
            torch.testing.assert_close(fn(q, k, v, given), attend(q, k, v, given))
    called = [each.what.split("flex_attention.")[1].split(")")[0] for each in breaks(fn)]
    masks = ["create_block_mask"] if inside and "block_mask" in made() else []
    assert called == [*masks, "flex_attention"] and len(graphs) == 2
