"""`torch.tensor`, `as_tensor` and `new_tensor` of lists with tensors among numbers: in one graph,
with eager's dtype, values and errors. Generated: the elements' dtypes, the lists, the choices."""

import itertools

import pytest
import torch

NUMBERS = [True, 3, 2.5, 1 + 2j]
DTYPES = [torch.bool, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
          torch.complex64]  # fmt: skip
MAKERS = {
    "tensor": lambda x, data, **k: torch.tensor(data, **k),
    "tensor by name": lambda x, data, **k: torch.tensor(data=data, **k),
    "as_tensor": lambda x, data, **k: torch.as_tensor(data, **k),
    "new_tensor": lambda x, data, **k: x.new_tensor(data, **k),
}
LISTS = {
    "number last": lambda t, u, n: [t, n],
    "number first": lambda t, u, n: (n, t),
    "three": lambda t, u, n: [t, n, u],
    "nested": lambda t, u, n: [[t, n], [n, u]],
    "deep": lambda t, u, n: [[[t], [u]], [[n], [t]]],
    "tensors alone": lambda t, u, n: [[t, u]],
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error).partition("\n")[0]


@pytest.mark.sweep(6)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("shape", LISTS)
def test_elements_of_every_dtype(maker, shape, capture, backend, same):
    make, pack = MAKERS[maker], LISTS[shape]
    pairs = list(itertools.product(DTYPES, NUMBERS))
    for (dtype, number), other in zip(pairs, itertools.cycle(DTYPES)):

        def fn(x, t, u, number=number):
            return make(x, pack(t, u, number)) * 2

        backend.clear()
        given = torch.ones(2), torch.tensor(1.75).to(dtype), torch.tensor(1).to(other)
        expected = outcome(fn, *given)
        if isinstance(expected, tuple):
            assert outcome(capture(fn), *given)[0] is expected[0]
            continue
        kinds = [dtype, other, torch.tensor(number).dtype]
        fits = maker != "new_tensor" or all(torch.can_cast(k, torch.float32) for k in kinds)
        got = capture(fn, nopython=fits)(*given)
        same(got, expected)
        assert got.stride() == expected.stride() and (len(backend) == 1 or not fits)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_dtype_that_is_asked_for(maker, dtype, capture, same):
    make = MAKERS[maker]

    def fn(x):
        return make(x, [x[0], 1, 2.75], dtype=dtype, device="cpu")

    x = torch.tensor([1.9, 2.0], requires_grad=True)
    expected = outcome(fn, x)
    got = outcome(capture(fn, nopython=dtype.is_floating_point), x)
    if isinstance(expected, tuple):
        assert got[0] is expected[0]
    else:
        same(got, expected)
        assert not got.requires_grad


def test_it_is_a_copy(capture, backend):
    def fn(x):
        y = torch.tensor([x[0], 1.0])
        y += 1
        return y, x

    x = torch.ones(2)
    assert torch.equal(capture(fn, nopython=True)(x)[0], torch.tensor([2.0, 2.0]))
    assert torch.equal(x, torch.ones(2)) and len(backend) == 1


def test_the_default_dtype_counts(capture, same):
    def fn(x):
        return torch.tensor([x[0], 1.0]), torch.tensor([x[0], 1j])

    x = torch.ones(2, dtype=torch.int64)
    torch.set_default_dtype(torch.float64)
    try:
        same(capture(fn, nopython=True)(x), fn(x))
    finally:
        torch.set_default_dtype(torch.float32)


def test_open_numbers_and_shapes(capture, backend, same):
    def fn(x, n):
        return torch.tensor([x[0], n, x.shape[0]]) + torch._shape_as_tensor(x).sum()

    compiled = capture(fn, nopython=True)
    for size, n in ((3, 2.0), (4, 3.0), (5, 7.5)):
        x = torch.rand(size)
        same(compiled(x, n), fn(x, n))
    assert len(backend) == 2


RAGGED = [lambda t: [t, [t]], lambda t: [[t, 1], [t]], lambda t: [t, "a"]]


@pytest.mark.parametrize("ragged", RAGGED)
def test_what_torch_refuses(ragged, capture):
    def fn(x):
        return torch.tensor(ragged(x[0]))

    x = torch.ones(2)
    with pytest.raises((TypeError, ValueError)) as wanted:
        fn(x)
    with pytest.raises(type(wanted.value)):
        capture(fn)(x)
    with pytest.raises(type(wanted.value)):
        capture(fn, nopython=True)(x)
