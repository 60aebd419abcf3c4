"""`one_hot` of a known number of classes: eager's values, and eager's words where it refuses."""

import flambeau_aot as aot
import pytest
import torch

INDICES = {
    "a vector": torch.arange(5),
    "a scalar": torch.tensor(3),
    "not contiguous": torch.arange(12).remainder(6).view(3, 4)[:, ::2].t(),
    "none": torch.zeros(0, 2, dtype=torch.long),
    "too large": torch.tensor([0, 6]),
    "negative": torch.tensor([0, -1]),
}


@pytest.mark.parametrize("call", [torch.nn.functional.one_hot, torch.ops.aten.one_hot])
@pytest.mark.parametrize("name", INDICES)
def test_as_eager(name, call) -> None:
    compiled = aot.aot_function(lambda x: call(x, 6), aot.run_as_is)
    try:
        expected = call(INDICES[name], 6)
    except RuntimeError as error:
        with pytest.raises(RuntimeError) as caught:
            compiled(INDICES[name])
        assert str(caught.value) == str(error)
        assert name in ("too large", "negative")
        return
    given = compiled(INDICES[name])
    assert given.dtype == expected.dtype
    assert given.stride() == expected.stride()
    assert torch.equal(given, expected)


def test_what_is_asked_is_asked_though_nobody_uses_the_result() -> None:
    def fn(x):
        torch.nn.functional.one_hot(x, 2)
        return x + 1

    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        aot.aot_function(fn, aot.run_as_is)(torch.tensor([2]))
