"""The last call's metadata as a predicate."""

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.frontends import like


def test_it_holds_for_equal_metadata_only() -> None:
    x, w = torch.randn(3, 4), torch.randn(4, requires_grad=True)
    same = like((x, w))
    assert same((torch.zeros(3, 4), torch.zeros(4, requires_grad=True)))
    others = [
        (x,),
        (x, w.detach()),
        (x, w * 1),
        (x.double(), w),
        (x.t().contiguous().t(), w),
        (torch.randn(4, 3), w),
        (x.to("meta"), w),
        (3, w),
        (torch.nn.Parameter(x, requires_grad=False), w),
    ]
    assert not [index for index, given in enumerate(others) if same(given)]
    with torch.no_grad():
        assert not same((x, w))
    both = like((x, x.clone()))
    assert not both((x, x))


@pytest.mark.parametrize("given", [(), (1,), (torch.ones(2), [torch.ones(2)])])
def test_other_calls_have_no_predicate(given) -> None:
    assert like(given) is None
    x = torch.ones(2)
    assert like((x, x)) is None


def test_calls_take_turns() -> None:
    compiled = aot.aot_function(lambda a, b: a * b + 1, aot.run_as_is)
    pairs = [
        (torch.randn(3), torch.randn(3)),
        (torch.randn(2, 3), torch.randn(3)),
        (torch.randn(3, requires_grad=True), torch.randn(3)),
    ]
    one = torch.randn(3)
    for _ in range(3):
        for a, b in (*pairs, (one, one)):
            result = compiled(a, b)
            assert torch.equal(result, a * b + 1)
            assert result.requires_grad == a.requires_grad
        assert torch.equal(compiled(a=one, b=2), one * 2 + 1)
    assert len(compiled.compiled) == 5
