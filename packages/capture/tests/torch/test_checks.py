"""Checks of a tensor's data that the graph makes, and functions whose result is vouched for."""

import pytest
import torch
from flambeau_capture.api import compiler_of


def checked(x):
    torch._check_tensor_all(x > 0)
    torch._check_tensor_all_with(ValueError, x < 9, lambda: "too large")
    return x * 2


@pytest.mark.parametrize("value", [1.0, 0.0, 9.5, 2.0])
def test_a_check_of_all_elements_is_part_of_the_graph(capture, backend, value):
    fn, x = capture(checked), torch.full((2,), value)
    fn(torch.ones(2))
    try:
        want = checked(x)
    except (RuntimeError, ValueError) as error:
        with pytest.raises(type(error)) as raised:
            fn(x)
        assert str(raised.value) == str(error)
    else:
        assert torch.equal(fn(x), want)
    assert len(backend) == 1 and not compiler_of(fn).records.breaks


def test_a_check_of_no_tensor_raises_what_torch_raises(capture):
    def wrong(x):
        torch._check_tensor_all(x)
        return x

    for x in (torch.ones(2), torch.ones(2, dtype=torch.long)):
        with pytest.raises(TypeError, match=r"dtype torch\.bool"):
            wrong(x)
        with pytest.raises(TypeError, match=r"dtype torch\.bool"):
            capture(wrong)(x)


def test_what_torch_was_told_is_constant_is_asked_once(capture, backend):
    asked = []

    @torch.compiler.assume_constant_result
    def installed(name):
        asked.append(name)
        return "-".join(reversed(name)) == "b-a"

    fn = capture(lambda x: x + 1 if installed("ab") else x - 1)
    for _ in range(3):
        assert fn(torch.ones(2)).tolist() == [2.0, 2.0]
    assert len(backend) == 1 and not compiler_of(fn).records.breaks
    assert set(asked) == {"ab"} and len(asked) <= 2
