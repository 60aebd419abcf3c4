"""Strides, shapes and dtypes of what decompositions give of inputs in several orders of memory:
a quarter of the operations of torch's database, against eager on a CPU, and against torch's own
description of a GPU, where that is what its kernels do.

`FLAMBEAU_ALL_LAYOUTS=1` has it look at all of them, some minutes.
"""

import os

import pytest
import torch
from flambeau_prims.conformance import Decomposing
from flambeau_prims.sweep import database
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
ORDERS = ("all turned", "first turned", "channels last")
# By what differs: parts that share memory (they are aot's), sizes that depend on the data, copies
# of memory that no two elements share.
LEFT = {"unsafe_chunk", "unsafe_split", "unique", "nonzero", "argwhere", "_unsafe_masked_index"}
ON_A_GPU = sorted(
    name
    for name in database.by_name()
    if name.startswith(("fft.", "linalg.svd", "linalg.eig", "linalg.solve"))
    or name in ("polar", "rsub", "nn.functional.batch_norm.without_cudnn", "grid_sampler_3d")
)
# Those that were once laid out otherwise, whatever the slice.
OFTEN = {"polar", "rsub", "nn.functional.grid_sample", "linalg.solve", "nn.functional.nll_loss"}
OFTEN |= {"nn.functional.binary_cross_entropy", "nn.functional.pixel_shuffle"}
OFTEN |= {
    "nn.functional.conv_transpose3d",
    "nn.functional.avg_pool3d",
    "nn.functional.logsigmoid",
    "nn.functional.batch_norm",
}
SLICE = 1 if os.environ.get("FLAMBEAU_ALL_LAYOUTS") else 4
ON_A_CPU = sorted({*sorted(set(database.by_name()) - LEFT)[::SLICE], *OFTEN})


def laid(value, order, place):
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.ndim < 2:
        return value
    value = value.detach()
    if order == "channels last":
        own = FORMATS.get(value.ndim)
        return value if own is None else value.contiguous(memory_format=own)
    if order == "first turned" and place:
        return value
    turned = list(range(value.ndim))[::-1]
    return value.permute(turned).contiguous().permute(turned)


def in_order(tree, order):
    leaves, spec = _pytree.tree_flatten(tree)
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    made = [
        laid(x, order, next(k for k, t in enumerate(tensors) if t is x))
        if isinstance(x, torch.Tensor)
        else x
        for x in leaves
    ]
    return _pytree.tree_unflatten(made, spec)


def facts(tree):
    """Strides of dimensions that are stepped along."""
    return [
        (tuple(x.shape), x.dtype, [s for n, s in zip(x.shape, x.stride()) if n > 1 and x.numel()])
        for x in _pytree.tree_leaves(tree)
        if isinstance(x, torch.Tensor) and x.layout == torch.strided
    ]


def compared(name, change):
    """How many calls give the same; fails at one that does not."""
    entry, count = database.by_name()[name], 0
    if not database.takes(entry, torch.float32):
        return 0
    for call in database.calls(entry, torch.float32, 4 // SLICE, False):
        for order in ORDERS:
            args, kwargs = change(in_order((call.args, call.kwargs), order))
            expected = answer(entry, args, kwargs)
            if expected is None:
                continue
            with Decomposing():
                found = facts(entry(*args, **kwargs))
            assert found == expected, (name, order, facts((args, kwargs)))
            count += 1
    return count


def answer(entry, args, kwargs):
    """What torch gives; None for what it refuses or does not describe."""
    try:
        return facts(entry(*args, **kwargs))
    except Exception:
        return None


@pytest.mark.parametrize("part", range(2))
def test_as_eager_on_a_cpu(part):
    assert sum(compared(name, lambda tree: tree) for name in ON_A_CPU[part::2]) > 100


def moved(tree):
    def there(x):
        if isinstance(x, torch.Tensor) and x.layout == torch.strided:
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda")
        return torch.device("cuda") if isinstance(x, torch.device) else x

    return _pytree.tree_map(there, tree)


def test_as_described_for_a_gpu():
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert sum(compared(name, moved) for name in ON_A_GPU) > 80


@pytest.mark.parametrize("second", [(), (3,)])
@pytest.mark.parametrize("first", [(), (3,)])
@pytest.mark.parametrize("places", [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
def test_scalars_of_a_cpu_follow_other_operands(places, first, second):
    """Every pointwise operator of two operands, as torch describes it, or refuses it."""
    compared = 0
    with FakeTensorMode():
        x, y = (torch.empty(s, device=d) for s, d in zip((first, second), places))
        for name in ("add", "mul", "atan2", "maximum", "eq", "where", "pow", "fmod", "lerp"):
            call = {
                "where": lambda: torch.where(x > 0, x, y),
                "lerp": lambda: torch.lerp(x, y, 0.5),
            }.get(name, lambda name=name: getattr(torch, name)(x, y))
            try:
                expected = call()
            except RuntimeError:
                continue
            with Decomposing():
                found = call()
            assert (found.device, found.shape) == (expected.device, expected.shape), name
            compared += 1
    assert compared > 4 or {first, second} != {()}
