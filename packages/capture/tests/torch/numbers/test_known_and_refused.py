"""What eager refuses of data that capture knows: the operator itself refuses, whatever is known."""

import pytest
import torch

X = torch.arange(4.0)
EACH = torch.tensor


def assigned(x, k):
    y = x.clone()
    y[k] = x[:2]
    return y


def assigned_columns(x, k):
    y = torch.stack([x, x])
    y[:, k] = x[:2]
    return y


MASKS = [EACH(row) for row in ([1, 0, 1, 0], [1, 0], [1, 0, 1, 0, 0], [0] * 5, [1] * 4, [[0] * 4])]
MASKS = [mask.bool() for mask in MASKS]
COUNTS = [EACH(row) for row in ([1, 2, 0, 3], [-1, 1, 1, 1], [1, 2], [[1, 2, 3, 4]], [-1], -1, 3)]
COUNTS += [EACH([1, 2, 0, 3], dtype=torch.int8), EACH([True] * 4)]
NUMBERS = [EACH(row) for row in (2, 0, -3, 9, [3], [1, 2])]

FAMILY = {
    "repeat_interleave": (lambda x, k: x.repeat_interleave(k), COUNTS),
    "of rows": (lambda x, k: x[:, None].repeat_interleave(k, dim=0), COUNTS),
    "of counts": (lambda x, k: torch.repeat_interleave(k), COUNTS),
    "mask": (lambda x, k: x[k], MASKS),
    "mask of columns": (lambda x, k: torch.stack([x, x])[:, k], MASKS),
    "mask of the last": (lambda x, k: torch.stack([x, x])[..., k], MASKS),
    "mask and a number": (lambda x, k: torch.stack([x, x])[1, k], MASKS),
    "mask of a new axis": (lambda x, k: x[None, :, None][:, k], MASKS),
    "assigned": (assigned, MASKS),
    "assigned columns": (assigned_columns, MASKS),
    "masked_select": (lambda x, k: x.masked_select(k), MASKS),
    "arange": (lambda x, k: torch.arange(k), NUMBERS),
    "zeros": (lambda x, k: x.new_zeros((k, 2)), NUMBERS),
    "narrow": (lambda x, k: x.narrow(0, k, 2), NUMBERS),
    "view": (lambda x, k: x.view(k, 2), NUMBERS),
    "chunk": (lambda x, k: x.chunk(k), NUMBERS),
    "bincount": (lambda x, k: torch.bincount(k), NUMBERS),
}


def outcome(fn, *args):
    try:
        return torch.utils._pytree.tree_map(lambda y: (y.tolist(), y.dtype), fn(*args))
    except Exception as error:
        return type(error), str(error).splitlines()[0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", FAMILY)
def test_known_data_is_refused_as_in_eager(name, constant, capture):
    operator, data = FAMILY[name]
    wanted = [outcome(operator, X, k) for k in data]
    assert any(isinstance(each, tuple) and isinstance(each[0], type) for each in wanted)
    for k, want in zip(data, wanted, strict=True):
        if constant:
            row, kind = k.tolist(), k.dtype
            fn = capture(lambda x: operator(x, torch.tensor(row, dtype=kind)))  # noqa: B023
            assert outcome(fn, X) == want
        else:
            assert outcome(capture(lambda x, k: operator(x, k)), X, k) == want
