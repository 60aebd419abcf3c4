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


@pytest.mark.parametrize("limit", [{}, {"max": 5}])
def test_a_check_of_a_size_is_made_while_capturing(capture, backend, limit):
    def sized(x, i):
        torch._check_is_size(i, **limit)
        return x[:i] + 1

    compiled, x = capture(sized), torch.ones(8)
    for i in (3, 5, 2, 4):
        assert torch.equal(compiled(x, i), sized(x, i))
    assert not compiler_of(compiled).records.breaks
    for i in (-1, *([6] if limit else [])):
        with pytest.raises(RuntimeError):
            sized(x, i)
        with pytest.raises(RuntimeError):
            compiled(x, i)


def test_an_operator_of_a_librarys_own_named_as_one_of_torch(capture, backend):
    """Torch's makes a quantized tensor, which no graph holds; this one does not."""

    @torch.library.custom_op("flambeau_named::quantize_per_tensor", mutates_args=())
    def quantize(x: torch.Tensor, scale: float) -> torch.Tensor:
        return (x / scale).round().to(torch.uint8)

    quantize.register_fake(lambda x, scale: torch.empty_like(x, dtype=torch.uint8))
    fn = lambda x: torch.ops.flambeau_named.quantize_per_tensor(x, 0.5) + 1  # noqa: E731
    compiled, x = capture(fn), torch.rand(4)
    assert torch.equal(compiled(x), fn(x))
    assert len(backend) == 1
    assert not compiler_of(compiled).records.breaks


@pytest.mark.parametrize("returned", ["Tensor(a!)", "()"])
def test_a_write_below_autograd_is_part_of_the_graph(capture, backend, returned):
    with torch.library._scoped_library("flambeau_writing", "FRAGMENT") as library:
        library.define(f"add_one(Tensor(a!) x) -> {returned}")

        def kernel(x):
            x.add_(1)
            return None if returned == "()" else x

        library.impl("add_one", kernel, "CompositeExplicitAutograd")

        def fn(x):
            torch.ops.flambeau_writing.add_one(x)
            return x * 2

        x, y = torch.ones(2), torch.ones(2)
        assert torch.equal(capture(fn)(x), fn(y))
        assert torch.equal(x, y)
        assert len(backend) == 1
