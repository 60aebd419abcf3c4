"""Places in memory that arguments share, and views of leaves among them."""

import flambeau_aot as aot
import pytest
import torch


def shared() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    base = torch.arange(10.0)
    return base, base[2:6], base.detach()[4:8]


def both(fn):
    """What a function gives and leaves behind, as it is and compiled."""
    compiled = aot.aot_function(fn, aot.run_as_is)
    found = []
    for call in (fn, compiled):
        base, x, y = shared()
        found.append((base, call(x, y)))
    return found


def test_a_place_in_shared_memory_is_the_callers() -> None:
    def fn(x, y):
        x.mul_(2)
        strided = y.as_strided((2,), (1,), 3)
        scattered = torch.as_strided_scatter(y, torch.ones(2), (2,), (1,), storage_offset=5)
        return strided.clone(), scattered, x.storage_offset(), y[1:].storage_offset()

    (_, expected), (_, given) = both(fn)
    assert expected[2:] == given[2:] == (2, 5)
    assert torch.equal(expected[0], given[0]) and torch.equal(expected[1], given[1])


def test_a_place_before_what_arguments_cover_is_refused() -> None:
    def fn(x, y):
        x.mul_(2)
        return y.as_strided((2,), (1,), 0).clone()

    with pytest.raises(aot.Unsupported, match="before that of the arguments"):
        aot.aot_function(fn, aot.run_as_is)(*shared()[1:])


def test_detached_results_are_in_the_callers_storage() -> None:
    def fn(x, y):
        x.mul_(2)
        return y.data, y.data[1:], y.data.as_strided((2,), (1,), 5), x.detach()

    (base, expected), (own, given) = both(fn)
    assert torch.equal(base, own)
    for one, other in zip(expected, given):
        assert torch.equal(one, other)
        assert other.untyped_storage().data_ptr() == own.data_ptr()
        assert one.storage_offset() == other.storage_offset()


def test_a_reshape_of_a_view_of_a_leaf_is_refused_as_in_eager() -> None:
    leaf = torch.zeros(2, 3, 2, requires_grad=True)
    for call in (lambda x: x.t_(), aot.aot_function(lambda x: x.t_(), aot.run_as_is)):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
            call(leaf[1:])


def test_an_index_out_of_bounds_is_noticed_before_the_leaf() -> None:
    def fn(x):
        x[0] = 2.0

    leaf = torch.zeros(1, 3, requires_grad=True)
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        with pytest.raises(Exception, match="out of bounds"):
            call(leaf[1:])


def test_a_derivative_of_another_shape_is_refused_by_name() -> None:
    def fn(x, y):
        y.scatter_(1, torch.zeros(1, 1, dtype=torch.long), x * 1)
        return y

    x, y = torch.ones(1, 3, requires_grad=True), torch.zeros(1, 1)
    with pytest.raises(RuntimeError, match="invalid gradient"):
        fn(x, y.clone()).sum().backward()
    with pytest.raises(aot.Unsupported, match="invalid gradient"):
        aot.aot_function(fn, aot.run_as_is)(x, y)


def test_a_view_of_a_view_that_begins_to_require_grad_is_refused() -> None:
    def fn(x, w):
        part = x.view_as(x)
        x.requires_grad_()
        return part * part.sin(), w * 2

    x, w = torch.ones(2, 3), torch.ones(3, requires_grad=True)
    with pytest.raises(aot.Unsupported, match="before the compiled region"):
        aot.aot_function(fn, aot.run_as_is)(x[0], w)
    assert aot.aot_function(fn, aot.run_as_is)(x, w)[0].requires_grad == fn(x, w)[0].requires_grad


def test_a_place_in_an_input_that_begins_inside_its_storage_and_is_written_to() -> None:
    def fn(x):
        before = x.as_strided((4,), (1,), 3)
        x.fill_(0.25)
        x.as_strided((4,), (1,), 3).add_(1)
        return before * 1

    def reads(x):
        return x.as_strided((4,), (1,), 3) * 1

    x = torch.arange(12.0).view(4, 3)
    with pytest.raises(aot.Unsupported, match="begins inside it"):
        aot.aot_function(fn, aot.run_as_is)(x[1:])
    compiled = aot.aot_function(reads, aot.run_as_is)
    assert torch.equal(compiled(x[1:]), reads(x[1:]))
    one, other = x.clone(), x.clone()
    assert torch.equal(aot.aot_function(fn, aot.run_as_is)(one), fn(other))
    assert torch.equal(one, other)
