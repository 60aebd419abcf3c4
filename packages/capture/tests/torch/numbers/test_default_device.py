"""A default device that the program has set: one graph, on the device that eager has."""

import pytest
import torch
from flambeau_capture import _torch_compat as compat
from flambeau_capture import graph_break, optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.errors import CaptureWarning

#: arguments of constructors that others do not take
ARGUMENTS = {
    torch.arange: (3,),
    torch.as_tensor: ([1.0, 2.0],),
    torch.asarray: ([1.0, 2.0],),
    torch.empty_permuted: ((2, 3), (1, 0)),
    torch.empty_strided: ((2, 3), (1, 2)),
    torch.eye: (3,),
    torch.full: ((2,), 5),
    torch.linspace: (0, 1, 3),
    torch.logspace: (0, 1, 3),
    torch.normal: (0.0, 1.0, (2,)),
    torch.randint: (5, (2,)),
    torch.randperm: (4,),
    torch.range: (0, 3),
    torch.scalar_tensor: (2.0,),
    torch.sparse_coo_tensor: ([[0, 1]], [1.0, 2.0]),
    torch.tensor: ([1, 2],),
    torch.tril_indices: (3, 3),
    torch.triu_indices: (3, 3),
    torch.complex: None,  # of tensors
    torch.nested.nested_tensor: None,
}
MAKERS = sorted(compat.device_constructors(), key=lambda fn: f"{fn.__module__}.{fn.__name__}")
DEVICES = ("meta", "cpu")


def where(value):
    return value.device, value.dtype, value.shape


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("maker", MAKERS, ids=lambda fn: fn.__name__)
@pytest.mark.filterwarnings("ignore")
def test_every_maker_uses_it(capture, maker, device):
    given = ARGUMENTS.get(maker, ((2,),))

    def fn(t):
        return t + 1, maker(*given), maker(*given, device="cpu")

    compiled = capture(fn)
    with torch.device(device):
        try:
            expected = fn(torch.ones(2, device="cpu"))
        except Exception:  # it does not take these arguments, or not on this device
            with pytest.raises(Exception):  # noqa: B017 - whatever eager says
                compiled(torch.ones(2, device="cpu"))
            return
        found = compiled(torch.ones(2, device="cpu"))
    assert [where(x) for x in found] == [where(x) for x in expected]


def test_most_makers_are_tried():
    assert len(MAKERS) > 30


@pytest.mark.parametrize("device", DEVICES)
def test_it_is_one_graph_which_is_guarded(capture, backend, device):
    compiled = capture(lambda t: (t + torch.ones(2, device=t.device), torch.zeros(3)))
    for _ in range(2):
        with torch.device(device):
            assert compiled(torch.ones(2))[1].device.type == device
        assert compiled(torch.ones(2))[1].device.type == "cpu"
    assert len(backend) == 2


def test_a_device_inside_is_the_nearer_one(capture, backend):
    def fn(t):
        before = torch.get_default_device(), torch.zeros(1)
        with torch.device("cpu"):
            inside = torch.get_default_device(), torch.zeros(1)
        return before, inside, torch.get_default_device(), torch.zeros(1)

    compiled = capture(fn)
    with torch.device("meta"):
        found, expected = compiled(torch.ones(2)), fn(torch.ones(2))
    flat = torch.utils._pytree.tree_leaves
    devices = [getattr(x, "device", x) for x in flat(found)]
    assert devices == [getattr(x, "device", x) for x in flat(expected)]
    assert len(backend) == 1


def test_across_a_break_and_set_for_all(capture, backend):
    def fn(t):
        first = torch.zeros(1)
        graph_break()
        return first, t + 1, torch.zeros(1)

    compiled = capture(fn)
    t = torch.ones(2)
    torch.set_default_device("meta")
    try:
        first, moved, last = compiled(t)
        assert compat.default_device() == torch.device("meta")
    finally:
        torch.set_default_device(None)
    assert [x.device.type for x in (first, moved, last)] == ["meta", "cpu", "meta"]
    assert len(backend) == 2 and compat.default_device() is None


def test_the_backend_is_called_without_it(capture):
    seen = []

    def backend(module, inputs):
        seen.append((torch.empty(0).device.type, torch._C._len_torch_function_stack()))
        if len(seen) == 2:
            raise RuntimeError("no such backend")
        return module.forward

    with torch.device("meta"):
        optimize(backend)(lambda t: t + 1)(torch.ones(2))
        with pytest.warns(CaptureWarning, match="no such backend"):
            optimize(backend)(lambda t: t + 2)(torch.ones(2))
        assert compat.default_device() == torch.device("meta")  # also after an error
    assert seen == [("cpu", 0)] * 2


def test_other_function_modes_are_left_to_python(capture):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    compiled = capture(lambda t: t + torch.ones(2))
    with torch.device("cpu"), Mode():
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    assert "FB0027" in str(compiler_of(compiled).records.skipped)
