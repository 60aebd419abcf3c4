"""Arrays and scalars of NumPy's in subscripts of tensors: eager's answer, and its refusals."""

import itertools

import numpy as np
import pytest
import torch

KEYS = {
    "integers": np.array([0, 2]),
    "integers of 32 bits": np.array([2, 0], dtype=np.int32),
    "negative": np.array([-1]),
    "of two dimensions": np.array([[0, 1], [2, 0]]),
    "with steps": np.arange(6)[::2] % 3,
    "empty": np.array([], dtype=np.int64),
    "booleans": np.array([True, False, True]),
    "of no dimension": np.array(1),
    "bytes": np.array([0, 1, 1], dtype=np.uint8),
    "floats": np.array([0.0, 1.0]),
    "out of bounds": np.array([7]),
    "a scalar": np.int64(1),
}
#: those that stay in the graph
CAPTURED = list(KEYS)[:6]


def row(x, key):
    return x[key] * 2


def element(x, key):
    return x[key, 1] + x[0, 0]


def inner(x, key):
    return x[:, key].sum()


def write(x, key):
    x[key] = 5.0
    x[key, 0] = x[1, 0]
    return x + 1


USES = [row, element, inner, write]


def outcome(fn, *args):
    x = torch.arange(12.0).reshape(3, 4)
    try:
        return repr(fn(x, *args)), repr(x)
    except Exception as error:
        return type(error), str(error), repr(x)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_arrays_index_tensors(use, capture):
    for key in KEYS.values():
        ours = capture(use)
        assert [outcome(ours, key) for _ in range(2)] == [outcome(use, key)] * 2


@pytest.mark.parametrize(
    ("use", "name"), itertools.product(USES, CAPTURED), ids=lambda x: getattr(x, "__name__", x)
)
def test_integers_index_within_one_graph(use, name, capture):
    assert outcome(capture(use, nopython=True), KEYS[name]) == outcome(use, KEYS[name])


def test_an_array_that_the_program_makes_indexes(capture):
    def program(x):
        return x[np.array([0, 2])] + x[:2, np.arange(4)]

    x = torch.rand(3, 4)
    assert torch.equal(capture(program, nopython=True)(x), program(x))


@pytest.mark.parametrize(
    "kind", [np.float32, np.float16, np.float64, np.int32, np.int64, np.uint8, np.bool_]
)
def test_scalars_that_torch_assigns_to_no_tensor_are_refused(kind, capture):
    def program(x, value):
        x[0, 1] = value
        return x * 2

    ours = capture(program)
    for value in (kind(1), kind(0), kind(1)):
        assert outcome(ours, value) == outcome(program, value)
