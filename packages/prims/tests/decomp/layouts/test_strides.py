"""Strides of what decompositions give, against eager's, for inputs in every order of memory."""

import itertools
import os

import pytest
import torch
from flambeau_prims.conformance import Decomposing
from flambeau_prims.decomposition_choice import decompositions
from flambeau_prims.graph_recorder import flatten
from flambeau_prims.sweep import database
from torch.utils._python_dispatch import TorchDispatchMode

INDEX = torch.tensor([2, 0, 1, 1])
SQUARE = torch.tensor([[2, 0], [1, 1]])
CALLS = {
    "one index": lambda x: x[INDEX],
    "one of two dimensions": lambda x: x[SQUARE],
    "one that is turned": lambda x: x[:, SQUARE.t()],
    "the last": lambda x: x[:, :, INDEX],
    "two beside each other": lambda x: x[:, INDEX, INDEX],
    "two apart": lambda x: x[INDEX, :, INDEX],
    "a row and a column": lambda x: x[INDEX[:, None], INDEX[None, :3]],
    "all": lambda x: x[SQUARE, SQUARE.t(), SQUARE],
    "take_along_dim": lambda x: x.take_along_dim(INDEX.view(4, 1, 1), 0),
    "renorm": lambda x: x.renorm(2, 0, 1.0),
    "mvlgamma": lambda x: (x.abs() + 3).mvlgamma(2),
    "addr": lambda x: x[0].addr(x[0, 0], x[0, 1]),
    "addr of a column": lambda x: x[0].t().addr(x[0, :, 0], x[0, :, 1]),
    "index_put": lambda x: x.index_put((INDEX,), x[:1]),
    "index_put by a mask": lambda x: x.index_put((x[0, 0] > 0,), x[:1, :1]),
    "a float function of integers": lambda x: torch.special.legendre_polynomial_p(
        (x[..., :1].abs() * 3).to(torch.uint8).expand(x.shape), (x.abs() * 5).to(torch.uint8)
    ),
    "index_put of a row": lambda x: x.index_put((x[:, 0, 0] > 0,), x[0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_as_eager(name):
    dense = torch.randn(4, 4, 4)
    for order in itertools.permutations(range(3)):
        inverse = sorted(range(3), key=order.__getitem__)
        x = dense.permute(order).contiguous().permute(inverse)
        for given in (x, x[:, :, :], torch.stack([x, x], -1)[..., 0]):
            expected = CALLS[name](given)
            with Decomposing():
                found = CALLS[name](given)
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride(), order


PARTS = 16
PART = int(os.environ.get("FLAMBEAU_PART", "0"))  # another one: another part of all
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
LAYOUTS = ("reversed", "channels last", "every other", "repeated")
ONES = ("one of the first", "one of the last", "one of images", "odd steps of one", "none")
"""Layouts with dimensions of size 1, or 0, whose steps are not those of row-major order."""
WITH_HOLES = ("diagonal_scatter", "select_scatter", "slice_scatter", "as_strided_scatter")
"""Copies that have in eager the holes that the argument has; ours are dense."""
UNPREDICTED = {
    "ldexp": "half precision takes another way to the same product",
    **dict.fromkeys(("argwhere", "nonzero"), "a stride would be a size counted in elements"),
    **dict.fromkeys(("empty_like", "new_empty_strided"), "never written"),
}


def laid_out(x, layout):
    """The tensor with its elements in another order of memory, or some of them repeated."""
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided or x.ndim == 0:
        return x
    x = x.detach()
    if layout == "reversed":
        order = [*range(x.ndim)][::-1]
        return x.permute(order).contiguous().permute(order)
    if layout == "channels last" and x.ndim > 2:
        return x.movedim(1, -1).contiguous().movedim(-1, 1)
    if layout == "every other":
        return torch.stack([x, x], -1).flatten(-2)[..., ::2]
    if layout == "repeated" and x.shape[-1]:
        return x[..., :1].clone().expand(x.shape)
    if layout == "one of the first":
        return laid_out(x, "reversed")[:1]
    if layout == "one of the last":
        return laid_out(x, "reversed")[..., :1]
    if layout == "one of images":
        return laid_out(x, "channels last")[:1]
    if layout == "odd steps of one" and 1 in x.shape:
        x = x.contiguous()
        return x.as_strided(x.shape, [7 if n == 1 else s for n, s in zip(x.shape, x.stride())])
    return x[:0] if layout == "none" else x


def mapped(function, tree):
    if isinstance(tree, dict):
        return {key: mapped(function, item) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)) and not isinstance(tree, torch.Size):
        items = [mapped(function, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else type(tree)(items)
    return function(tree)


def told(result):
    """Strides, of dimensions of size 1 too: a later operation goes by them."""
    return [
        t.stride() if isinstance(t, torch.Tensor) and t.layout is torch.strided else None
        for t in flatten(result)
    ]


def arranged(call, layout, which):
    """The arguments of a call, all tensors or the first in another layout."""
    met = itertools.count()

    def one(x):
        return laid_out(x, layout) if which == "all" or next(met) == 0 else copied(x)

    return mapped(lambda x: one(x) if isinstance(x, torch.Tensor) else x, call.args), mapped(
        lambda x: one(x) if isinstance(x, torch.Tensor) else x, call.kwargs
    )


def copied(tree):
    """Other tensors of the same elements, strides included, which may be written to."""

    def one(x):
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            return x
        reach = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
        flat = x.detach().as_strided((reach if x.numel() else 0,), (1,)).clone()
        return flat.as_strided(x.shape, x.stride())

    return mapped(one, tree)


def outcome(entry, args, kwargs):
    """Strides of the results; None where the call is refused."""
    torch.manual_seed(0)
    try:
        return told(entry(*args, **kwargs))
    except Exception:  # eager refuses some layouts of what it writes to
        return None


@pytest.mark.filterwarnings("ignore")
def test_the_database_in_every_layout():
    wrong, asked = [], 0
    for number, (name, entry) in enumerate(sorted(database.by_name().items())):
        dtype = DTYPES[number // PARTS % len(DTYPES)]
        dtype = dtype if database.takes(entry, dtype) else torch.float32
        if number % PARTS != PART or name in UNPREDICTED or not database.takes(entry, dtype):
            continue
        for call in database.calls(entry, dtype, 1, False):
            for layout, which in itertools.product(LAYOUTS + ONES, ("all", "first")):
                if name in WITH_HOLES and layout not in ("reversed", "channels last"):
                    continue
                given = arranged(call, layout, which)
                expected = outcome(entry, *copied(given))
                if expected is None:
                    continue
                given = copied(given)
                with Decomposing():
                    found = outcome(entry, *given)
                asked += 1
                if found not in (expected, None):
                    wrong.append(f"{name} {dtype} {layout} {which}: {found} for {expected}")
    assert wrong == []
    assert asked > 100


GRADIENTS = (
    "nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool3d nn.functional.avg_pool3d"
    " nn.functional.glu nn.functional.huber_loss nn.functional.smooth_l1_loss nn.functional.prelu"
    " nn.functional.mse_loss nn.functional.leaky_relu nn.functional.relu nn.functional.batch_norm"
    " nn.functional.interpolate.bicubic nn.functional.conv_transpose3d nn.functional.pixel_shuffle"
    " native_layer_norm constant_pad_nd cdist fft.fft fft.fft2"
).split()
"""Those of whose gradients one was once laid out otherwise, whatever the slice."""
NOT_COMPARED = {
    "aten::_embedding_bag": "three results that only the gradient reads, left out by some kernels",
    "aten::log_sigmoid_forward": "a buffer that only the gradient reads",
    "aten::unique_dim": "results that were not asked for",
    "aten::_conj": "a view in eager, whose memory is another matter",
    "aten::nonzero": UNPREDICTED["nonzero"],
    **dict.fromkeys(("aten::pixel_shuffle", "aten::pixel_unshuffle"), "a view of no elements"),
    **dict.fromkeys((f"aten::{name}" for name in WITH_HOLES), "the holes of the argument"),
}


class AlsoDecomposed(TorchDispatchMode):
    """Every operator is computed by its decomposition too; `wrong` tells where strides differ."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __init__(self, wrong):
        super().__init__()
        self.table, self.wrong, self.compared = decompositions(), wrong, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name, function = func._schema.name, self.table.get(func)
        if function is None or func._schema.is_mutable or name in NOT_COMPARED or "empty" in name:
            return result
        try:
            found = function(*args, **(kwargs or {}))
        except Exception:  # an index that only eager takes
            return result
        if found is not NotImplemented:
            self.compared += 1
            if told(found) != told(result):
                given = told([x for x in args if isinstance(x, torch.Tensor)])
                self.wrong.append(f"{func} of {given}: {told(found)} for {told(result)}")
        return result


def cotangents(ends):
    """Ones in several layouts; those of a sum are one number, repeated."""
    yield [torch.ones_like(x, memory_format=torch.contiguous_format) for x in ends]
    yield [torch.ones((), dtype=x.dtype).expand(x.shape) for x in ends]
    yield [laid_out(torch.ones_like(x), "reversed") for x in ends]
    yield [laid_out(torch.ones_like(x), "channels last") for x in ends]


@pytest.mark.filterwarnings("ignore")
def test_gradients_in_every_layout():
    names = sorted(database.by_name())
    names = sorted({*names[PART * 4 % 64 :: 64], *GRADIENTS})
    wrong = []
    mode = AlsoDecomposed(wrong)
    for name in names:
        entry = database.by_name()[name]
        if not database.has_gradient(entry, torch.float32):
            continue
        for call in database.calls(entry, torch.float32, 2, True):
            for layout, which in itertools.product(("dense", *LAYOUTS), ("all", "first")):
                args, kwargs = copied(arranged(call, layout, which))
                wanted = [x for x in flatten((args, kwargs)) if isinstance(x, torch.Tensor)]
                leaves = [x.requires_grad_() for x in wanted if x.is_floating_point()]
                try:
                    with mode:
                        results = flatten(entry(*args, **kwargs))
                        ends = [x for x in results if isinstance(x, torch.Tensor)]
                        ends = [x for x in ends if x.requires_grad]
                        for given in cotangents(ends):
                            torch.autograd.grad(
                                ends, leaves, given, allow_unused=True, retain_graph=True
                            )
                except (RuntimeError, ValueError, NotImplementedError, IndexError):
                    continue  # eager refuses the layout, or has no derivative
    assert sorted(set(wrong)) == []
    assert mode.compared > 1000


#: views, by a dimension of their argument
VIEWS = {
    "select": lambda x, d: x.select(d, 0),
    "squeeze": lambda x, d: x.squeeze(d),
    "squeeze of two": lambda x, d: x.squeeze((0, d)) if d else x.squeeze((0,)),
    "squeeze of all": lambda x, d: x.squeeze(),
    "unsqueeze": lambda x, d: x.unsqueeze(d),
    "unbind": lambda x, d: x.unbind(d),
    "narrow": lambda x, d: x.narrow(d, 0, 1),
    "split": lambda x, d: x.split(1, d),
    "movedim": lambda x, d: x.movedim(0, d),
    "flatten": lambda x, d: x.flatten(d),
    "unfold": lambda x, d: x.unfold(d, 1, 1),
    "diagonal": lambda x, d: x.diagonal(0, 0, d) if d else x,
    "expand": lambda x, d: x.unsqueeze(d).expand(*x.shape[:d], 2, *x.shape[d:]),
    "view": lambda x, d: x.reshape([n for n in x.shape if n != 1]),
    "two more": lambda x, d: x.reshape(1, *x.shape, 1),
    "every other": lambda x, d: x[(slice(None),) * d + (slice(None, None, 2),)],
}
ODD = [(1, 3, 2), (2, 1, 3), (3, 2, 1), (1, 1, 4), (1, 4, 1, 2), (2, 1, 1, 2), (1, 1), (0, 1, 2)]


@pytest.mark.parametrize("name", VIEWS)
def test_views_keep_strides_of_dimensions_of_one(name):
    """In every order of memory, dense and cut out of more."""
    for shape in ODD:
        for order in itertools.permutations(range(len(shape))):
            inverse = sorted(range(len(shape)), key=order.__getitem__)
            sizes = [shape[d] for d in order]
            more = torch.randn([n + 1 for n in sizes])[tuple(slice(n) for n in sizes)]
            for x in (torch.randn(sizes).permute(inverse), more.permute(inverse)):
                for dim in range(len(shape)):
                    try:
                        expected = VIEWS[name](x, dim)
                    except (RuntimeError, IndexError):  # of no elements, or of steps of one
                        continue
                    with Decomposing():
                        found = VIEWS[name](x, dim)
                    assert _strides(found) == _strides(expected), (x.shape, x.stride(), dim)


def _strides(value):
    return [each.stride() for each in (value if isinstance(value, tuple) else [value])]
