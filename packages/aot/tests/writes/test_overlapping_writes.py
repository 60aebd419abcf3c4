"""Writes to memory that the same call reads: as eager does them, or refused; every two views of one
memory, every kind of write."""

import itertools

import flambeau_aot as aot
import pytest
import torch

VIEWS = {
    "whole": lambda x: x,
    "turned": lambda x: x.t(),
    "first rows": lambda x: x[:3],
    "later rows": lambda x: x[1:],
    "even rows": lambda x: x[::2],
    "odd rows": lambda x: x[1::2],
    "left": lambda x: x[:, :2],
    "right": lambda x: x[:, 2:],
    "columns": lambda x: x[:, 1:3],
    "a row": lambda x: x[0],
    "a column": lambda x: x[:, 1],
    "diagonal": lambda x: x.diagonal(),
    "repeated": lambda x: x[1].expand(4, 4),
    "windows": lambda x: x.view(-1).unfold(0, 4, 2),
    "by place": lambda x: x.as_strided((4, 4), (1, 1), 3),
}
WRITES = {
    "copy_": lambda a, b: a.copy_(b),
    "add_": lambda a, b: a.add_(b),
    "[]=": lambda a, b: a.__setitem__(slice(None), b),
    "out=": lambda a, b: torch.mul(a, b, out=a),
    "index_copy_": lambda a, b: a.index_copy_(0, torch.arange(len(a)).flip(0), b),
    "addmm_": lambda a, b: a.addmm_(b, b),
    "_foreach_mul_": lambda a, b: torch._foreach_mul_([a], [b]),
}


def outcome(run, x):
    try:
        return run(x), x, None
    except (RuntimeError, IndexError) as error:  # aot.AotError among them
        return None, None, error


@pytest.mark.sweep(2)
@pytest.mark.parametrize("write", WRITES)
def test_every_two_views(write) -> None:
    done = refused = 0
    for one, other in itertools.product(VIEWS, VIEWS):

        def fn(x, one=one, other=other):
            WRITES[write](VIEWS[one](x), VIEWS[other](x))
            return x + 1

        expected, into, error = outcome(fn, torch.arange(1.0, 17).reshape(4, 4))
        compiled = aot.aot_function(fn, aot.run_as_is)
        given, changed, refusal = outcome(compiled, torch.arange(1.0, 17).reshape(4, 4))
        if refusal is not None:
            assert error is not None or isinstance(refusal, aot.Unsupported), refusal
            refused += 1
            continue
        assert error is None, (one, other, "eager refuses")
        torch.testing.assert_close(given, expected, rtol=0, atol=0)
        torch.testing.assert_close(changed, into, rtol=0, atol=0)
        done += 1
    assert done or write == "addmm_"
    assert refused


APART = [("even rows", "odd rows"), ("left", "right"), ("a row", "later rows")]


@pytest.mark.parametrize(("one", "other"), [*APART, ("whole", "whole"), ("columns", "columns")])
def test_what_is_apart_or_the_same_is_compiled(one, other, same_as_eager) -> None:
    def fn(x):
        a, b = VIEWS[one](x), VIEWS[other](x)
        a.add_(b[0] if a.dim() < b.dim() else b)
        return x.cos()

    same_as_eager(fn, torch.randn(4, 4))


def test_arguments_that_are_parts_of_one_memory() -> None:
    """How they lie is known when the program is traced for them."""

    def fn(a, b):
        a.copy_(b)
        return a + 1

    for start, refused in ((0, False), (2, True), (4, False)):
        memory = torch.arange(8.0)
        compiled = aot.aot_function(fn, aot.run_as_is)
        if refused:
            with pytest.raises(aot.Unsupported, match="reads at other places"):
                compiled(memory[start : start + 4], memory[:4])
        else:
            compiled(memory[start : start + 4], memory[:4])
            assert torch.equal(memory[start : start + 4], torch.arange(4.0))


def test_an_argument_whose_elements_share_memory() -> None:
    x = torch.ones(6).as_strided((3, 3), (1, 1))
    with pytest.raises(aot.Unsupported, match="elements share memory"):
        aot.aot_function(lambda x: x.mul_(2), aot.run_as_is)(x)


REPEATED = {
    "expanded": lambda x: x.expand(2, *x.shape),
    "along a row": lambda x: x[:, :1].expand(4, 4),
    "windows": lambda x: x.view(-1).unfold(0, 4, 2),
}
PARTS = {
    "first": lambda x: x[:1],
    "last": lambda x: x[1:],
    "one": lambda x: x.select(0, 1),
    "whole": lambda x: x,
}


@pytest.mark.parametrize("write", WRITES)
def test_a_part_of_an_argument_that_repeats_memory(write) -> None:
    """Eager writes to a part that repeats none, and the other elements are written to with it."""
    for repeat, part in itertools.product(REPEATED, PARTS):

        def fn(x, part=part):
            target = PARTS[part](x)
            WRITES[write](target, target)
            return x + 1

        both = []
        for run in (fn, aot.aot_function(fn, aot.run_as_is)):
            memory = torch.arange(1.0, 17).reshape(4, 4)
            result, _, error = outcome(run, REPEATED[repeat](memory))
            both.append((result, memory, error))
        (expected, written, error), (found, changed, refusal) = both
        if refusal is not None:
            assert error is not None or isinstance(refusal, aot.Unsupported), refusal
            torch.testing.assert_close(changed, torch.arange(1.0, 17).reshape(4, 4))
            continue
        assert error is None
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(changed, written)


@pytest.mark.parametrize("sizes", [(1,), (1, 1), (1, 1, 1)], ids=str)
def test_an_expanded_number_has_strides_of_zero(sizes: tuple[int, ...]) -> None:
    """And is written to with the number."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        number = x.sum()
        wide = number.expand(sizes)
        wide.add_(1)
        return wide, number, number.expand_as(torch.ones(sizes)).clone()

    x = torch.rand(3)
    for found, expected in zip(
        aot.aot_function(program, aot.run_as_is)(x), program(x), strict=True
    ):
        assert torch.equal(found, expected) and found.stride() == expected.stride()


ARRAYS = {
    "the same": lambda base: (base, torch.from_numpy(base.numpy())),
    "a part": lambda base: (base, torch.from_numpy(base.numpy()[1:])),
    "two parts": lambda base: tuple(torch.from_numpy(base.numpy()[at:]) for at in (0, 1)),
    "apart": lambda base: tuple(torch.from_numpy(base.numpy()[at : at + 2]) for at in (0, 2)),
}


@pytest.mark.parametrize("earlier", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("pair", ARRAYS)
def test_of_storages_over_the_memory_of_an_array(pair, earlier) -> None:
    """Storages that are not one, over the same memory, are refused, in a later call too."""

    def fn(a, b):
        a.add_(1)
        return b * 2

    compiled = aot.aot_function(fn, aot.run_as_is)
    if earlier:
        compiled(*(each.clone() for each in ARRAYS[pair](torch.arange(4.0))))
    expected, into, _ = outcome(lambda x: fn(*ARRAYS[pair](x)), torch.arange(4.0))
    given, changed, refusal = outcome(lambda x: compiled(*ARRAYS[pair](x)), torch.arange(4.0))
    if pair == "apart":
        assert torch.equal(given, expected) and torch.equal(changed, into)
    else:
        assert isinstance(refusal, aot.Unsupported), refusal
        assert refusal.id == "AO0009"
