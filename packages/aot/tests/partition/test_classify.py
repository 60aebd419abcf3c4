"""Classes of operators."""

import operator

import pytest
import torch
from flambeau_aot.partition.cost import classify, is_random

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (aten.add.Tensor, "pointwise"),
        (aten.gelu_backward.default, "pointwise"),
        (aten.view.default, "view"),
        (aten.t.default, "view"),
        (aten.sum.dim_IntList, "reduction"),
        (aten._softmax.default, "reduction"),
        (aten.mm.default, "matmul"),
        (aten.convolution.default, "leaf"),
        (aten.max_pool2d_with_indices.default, "leaf"),
        (aten.bernoulli.p, "random"),
        (aten.native_dropout.default, "random"),
        (aten.full.default, "creation"),
        (aten.embedding.default, "index"),
        (operator.getitem, "view"),
        (len, "leaf"),
    ],
)
def test_classes(op, expected) -> None:
    assert classify(op) == expected


def test_the_callers_word_comes_first_but_for_random_operators() -> None:
    assert classify(aten.mm.default, lambda op: "pointwise") == "pointwise"
    assert classify(aten.mm.default, lambda op: None) == "matmul"
    assert classify(aten.bernoulli.p, lambda op: "pointwise") == "random"
    assert is_random(aten.rand.default)
    assert not is_random(aten.add.Tensor)
