"""NumPy's scalars that are another in every call: left open, whatever is done with them; classes,
values and warnings are eager's."""

import warnings

import numpy as np
import pytest
import torch
from flambeau_capture.api import compiler_of

KINDS = (np.float64, np.float32, np.float16, np.int64, np.int32, np.int16, np.int8, np.uint8)
EXPRESSIONS = (
    "v", "v + 1", "2.5 * v", "v - 0.1", "3 - v", "v / 2", "v / v", "v // 2", "v % 3", "-v",
    "v * w", "v + w * 2 - v", "v ** 2", "w ** 0.5", "abs(v)", "float(v)", "int(v)", "v.item()",
    "math.sqrt(v)", "math.floor(v)", "np.sqrt(v)", "np.exp(w)", "np.maximum(v, w)", "np.sin(v) + 1",
    "v > 6", "v == w", "1 if v > 6 else 2", "v and w", "not v", "round(v)", "str(v)", "v.dtype",
    "v.real", "(v, [v, {'k': w}])", "np.add(v, 1)", "bool(v)", "min(v, w)", "v << 1", "n * v",
    "v + n", "v if v is not None else 0", "isinstance(v, float)", "f'{v:.3f}'", "v.astype(np.int8)",
)  # fmt: skip
IN_TENSORS = (
    "x * v", "x + v", "v * x", "x / v", "x - v * 2", "x.add(x, alpha=v)", "torch.full((2,), v)",
    "x[int(v) % 2]", "x.clamp(max=v)", "i * v", "i + v", "torch.tensor(v) + x", "x > v", "x ** v",
    "torch.from_numpy(a * v)", "torch.from_numpy(a + v)", "x * (v * w)", "x * np.sqrt(v)",
    "torch.as_tensor(v)", "x.sum() > v",
)  # fmt: skip
PLACES = {"argument": "pass", "attribute": "v = owner.v", "item": "v = table['v']"}
#: a branch on it, or its own text, is another program for each value
BRANCHES = (
    "str(v)",
    "f'{v",
    "min(",
    "v and w",
    "1 if",
    "v ==",
    "np.maximum",
    "bool",
    "not v",
    ">",
    "astype",
)


class Owner:
    v = None


def world(expression, place):
    names = {"np": np, "torch": torch, "owner": Owner(), "table": {}, "a": np.arange(2.0)}
    source = f"""
import math
def f(x, i, n, v, w):
    {PLACES[place]}
    y = x + 1
    return y, {expression}
"""
    exec(source, names)
    return names


def shown(value):
    if isinstance(value, list | tuple | dict):
        parts = value.items() if isinstance(value, dict) else value
        return type(value), [shown(part) for part in parts]
    return type(value), getattr(value, "dtype", None), str(value)


def called(names, kind, turn):
    v, w = kind(turn + 2.5), kind(7)
    names["owner"].v = names["table"]["v"] = v
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            answer = names["f"](torch.arange(2.0), torch.arange(2), turn, v, w)
        except Exception as error:
            return type(error), str(error)
    words = sorted({str(one.message) for one in told if one.category is RuntimeWarning})
    return shown(answer), words


@pytest.mark.sweep(8)
@pytest.mark.filterwarnings("ignore::flambeau_capture.errors.CaptureWarning")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_answers_are_eagers(capture, kind, place):
    every = [*EXPRESSIONS, *IN_TENSORS]
    for expression in every[([*PLACES].index(place) + KINDS.index(kind)) % 9 :: 9]:
        ours, theirs = world(expression, place), world(expression, place)
        ours["f"] = capture(ours["f"], never_slower=False)
        for turn in range(5):
            got, wanted = called(ours, kind, turn), called(theirs, kind, turn)
            assert got == wanted, (expression, turn)


_OPEN = (np.float64, np.float32, np.int64)


@pytest.mark.parametrize("kind", _OPEN, ids=lambda kind: kind.__name__)
def test_they_are_left_open(capture, backend, kind):
    for number, expression in enumerate([*EXPRESSIONS, *IN_TENSORS]):
        if any(word in expression for word in BRANCHES) or number % 3 != _OPEN.index(kind):
            continue
        ours = world(expression, [*PLACES][number % len(PLACES)])
        ours["f"] = capture(ours["f"], never_slower=False)
        for turn in range(10):
            called(ours, kind, turn)
        assert len(backend) <= 4, expression
        assert compiler_of(ours["f"]).cache.counters()["limit_reached"] == 0, expression
        backend.clear()


DATA = (
    "torch.tensor(v)", "torch.as_tensor(v)", "torch.asarray(v)", "torch.tensor([v, v])",
    "torch.as_tensor([v])", "torch.tensor((v, 1))", "torch.tensor([[v], [2]])", "x.new_tensor(v)",
    "torch.tensor([v, 1.5])", "torch.tensor(v, dtype=torch.float16)", "torch.full((2,), v)",
    "torch.scalar_tensor(v)", "x.new_full((2,), v)", "torch.full_like(x, v)", "torch.arange(v)",
    "torch.where(x > 0, v, 1)", "torch.result_type(x, v)", "x.long() * v", "torch.add(x.char(), v)",
    "torch.linspace(0, v, 3)", "x.bool() & v", "x == v", "x.masked_fill(x > 1, v)",
)  # fmt: skip


@pytest.mark.parametrize("kind", [*KINDS[1:6:2], np.bool_], ids=lambda kind: kind.__name__)
def test_dtypes_are_those_of_numpys_classes(capture, kind):
    """Torch asks a scalar among data for its dtype, and takes a boolean of NumPy's for a float."""
    for expression in DATA:
        ours, theirs = world(expression, "argument"), world(expression, "argument")
        ours["f"] = capture(ours["f"], never_slower=False)
        for turn in range(2):
            got, wanted = called(ours, kind, turn), called(theirs, kind, turn)
            assert got == wanted or isinstance(got[0], type), (expression, turn)
            assert isinstance(got[0], type) == isinstance(wanted[0], type), (expression, turn)
