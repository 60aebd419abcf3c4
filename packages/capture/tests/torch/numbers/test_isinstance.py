"""`isinstance` and `issubclass` of torch's objects and classes: every object with every class."""

import collections.abc
import inspect

import pytest
import torch

OBJECTS = {
    "tensor": lambda: torch.ones(2),
    "double": lambda: torch.ones(2, dtype=torch.float64),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "buffer": lambda: torch.nn.Buffer(torch.ones(2)),
    "storage": lambda: torch.ones(2).storage(),
    "bool storage": lambda: torch.ones(2, dtype=torch.bool).storage(),
    "untyped storage": lambda: torch.ones(2).untyped_storage(),
    "size": lambda: torch.ones(2).shape,
    "dtype": lambda: torch.float32,
    "device": lambda: torch.device("cpu"),
    "module": lambda: torch.nn.Linear(1, 1),
    "number": lambda: 3,
    "list": lambda: [1],
    "dict": dict,
    "function": lambda: OBJECTS,
}
CLASSES = [
    torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, torch.nn.UninitializedParameter,
    torch.FloatTensor, torch.DoubleTensor, torch.FloatStorage, torch.BoolStorage,
    torch.TypedStorage, torch.UntypedStorage, torch.Size, torch.dtype, torch.device,
    torch.nn.Module, torch.nn.Linear, torch.autograd.Variable, torch.autograd.Function,
    int, tuple, object, type, collections.abc.Sized, collections.abc.Sequence,
    collections.abc.Iterable, collections.abc.Hashable, collections.abc.Callable,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("made", OBJECTS)
@pytest.mark.parametrize("place", ["argument", "variable"])
def test_instances(capture, made, place):
    obj = OBJECTS[made]()

    def of_argument(x, obj):
        return x + 1, [isinstance(obj, kind) for kind in CLASSES]

    def of_variable(x, _):
        return x + 1, [isinstance(obj, kind) for kind in CLASSES]

    fn = of_argument if place == "argument" else of_variable
    x = torch.ones(1)
    assert capture(fn)(x, obj)[1] == fn(x, obj)[1]


def test_subclasses(capture):
    def fn(x):
        return x + 1, [issubclass(one, kind) for one in CLASSES for kind in CLASSES]

    assert not inspect.isfunction(CLASSES[0])
    assert capture(fn)(torch.ones(1))[1] == fn(torch.ones(1))[1]


@pytest.mark.parametrize("operation", ["acos_", "abs", "clone", "neg_"])
@pytest.mark.parametrize("out", [0, 1, -2])
def test_what_a_map_answers_is_its_argument_or_is_not(capture, operation, out):
    def fn(x):
        mapped = torch.vmap(getattr(torch.Tensor, operation), out_dims=out)(x)
        itself = torch.vmap(lambda row: (row, row + 1), out_dims=out)(x)
        return mapped is x, itself[0] is x, itself[1] is x, mapped, itself[0]

    ours, theirs = torch.rand(3, 3), torch.rand(3, 3)
    theirs.copy_(ours)
    got, expected = capture(fn)(ours), fn(theirs)
    assert got[:3] == expected[:3] and torch.equal(ours, theirs)
    assert torch.equal(got[3], expected[3]) and torch.equal(got[4], expected[4])
