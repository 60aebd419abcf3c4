"""Sizes as symbols: when they become ones, what guards them, and that results are eager's."""

import pytest
import torch
from flambeau_capture import mark_dynamic, mark_static
from flambeau_capture.api import compiler_of


def agree(fn, plain, *args):
    ours, theirs = fn(*args), plain(*args)
    assert type(ours) is type(theirs)
    if isinstance(theirs, tuple):
        assert all(
            torch.equal(a, b) if isinstance(b, torch.Tensor) else (type(a), a) == (type(b), b)
            for a, b in zip(ours, theirs, strict=True)
        )
    else:
        assert torch.equal(ours, theirs)


def numbers_of(backend, index=-1):
    return [given for given in backend.inputs[index] if not isinstance(given, torch.Tensor)]


def test_the_second_size_makes_a_dimension_symbolic(capture, backend):
    def normed(x):
        return (x - x.mean(0)) / x.shape[0]

    fn = capture(normed)
    for size in (4, 5, 6, 7, 100):
        agree(fn, normed, torch.randn(size, 3))
    assert len(backend) == 2
    assert numbers_of(backend) == [5]
    symbol = next(iter(backend.graphs[1].graph.nodes))
    assert symbol.op == "placeholder" and isinstance(symbol.meta["val"], torch.SymInt)


def test_a_size_that_is_asked_whether_it_is_none_stays_open(capture, backend):
    def masked(mask, length=None):
        length = length if length is not None else mask.shape[-1]
        width = length or None
        rows = next(iter([length]), None)
        if width is None or rows is None or length == None:  # noqa: E711
            return mask
        return mask[:, None, :].expand(mask.shape[0], length, width) * rows

    def asked(x):
        return masked(x, x.shape[1]) + masked(x).sum()

    fn = capture(asked)
    for size in (4, 5, 6, 7):
        agree(fn, asked, torch.randn(2, size))
    assert len(backend) == 2


def test_no_placeholder_for_a_size_that_the_graph_does_not_need(capture, backend):
    fn = capture(lambda x: x * 2)
    for size in (4, 5, 6):
        fn(torch.randn(size))
    assert len(backend) == 2 and numbers_of(backend) == []


def test_true_at_once_and_false_never(capture, backend):
    def doubled(x):
        return torch.cat([x, x])

    fn = capture(doubled, dynamic=True)
    for size in (4, 5, 6):
        agree(fn, doubled, torch.randn(size))
    assert len(backend) == 1
    backend.clear()
    fn = capture(doubled, dynamic=False)
    for size in (4, 5, 6):
        agree(fn, doubled, torch.randn(size))
    assert len(backend) == 3


def test_branches_on_sizes_are_guards(capture, backend):
    def branching(x):
        n = x.shape[0]
        if n > 10:
            return x.sum(0), n
        if n % 2 == 0:
            return x.view(2, n // 2, -1).mean(0), n // 2
        return x * n, -n

    fn = capture(branching, dynamic=True)
    for size in (4, 6, 8, 5, 7, 9, 11, 12, 40, 4, 7, 30):
        agree(fn, branching, torch.randn(size, 2))
    assert len(backend) == 3


def test_sizes_zero_and_one_are_constants(capture, backend):
    def summed(x):
        return x.sum(0) + x.shape[0]

    fn = capture(summed, dynamic=True)
    for size in (3, 1, 0, 4, 1, 0):
        agree(fn, summed, torch.randn(size, 2))
    assert len(backend) == 3


def test_relations_between_tensors(capture, backend):
    def added(x, y):
        return x + y, x.shape[0] + y.shape[0]

    fn = capture(added, dynamic=True)
    for n, m in ((3, 3), (4, 4), (5, 1), (6, 1), (7, 7)):
        agree(fn, added, torch.randn(n), torch.randn(m))
    assert len(backend) == 2
    with pytest.raises(RuntimeError, match="must match"):
        fn(torch.randn(3), torch.randn(4))


def test_strides_that_follow_sizes_are_checked(capture, backend):
    def flat(x):
        return x.reshape(-1) * x.stride(0)

    fn = capture(flat, dynamic=True)
    agree(fn, flat, torch.randn(3, 4))
    agree(fn, flat, torch.randn(5, 6))
    assert len(backend) == 1
    agree(fn, flat, torch.randn(6, 5).t())
    agree(fn, flat, torch.randn(5, 12)[:, ::2])
    agree(fn, flat, torch.randn(5, 12)[:, :6])


def test_marked_dimensions(capture, backend):
    def scaled(x):
        return x * x.shape[0] + x.shape[1]

    fn = capture(scaled)
    x = torch.randn(4, 3)
    mark_dynamic(x, 0, min=2, max=8)
    fn(x)
    for size in (2, 5, 8):
        agree(fn, scaled, torch.randn(size, 3))
    assert len(backend) == 1
    agree(fn, scaled, torch.randn(9, 3))  # beyond the bound
    assert len(backend) == 2
    backend.clear()
    fn = capture(scaled, dynamic=True)
    for size in (4, 5):
        y = torch.randn(size, size)
        mark_static(y, 0)
        agree(fn, scaled, y)
    assert len(backend) == 2
    with pytest.raises(IndexError):
        mark_dynamic(x, 2)
    with pytest.raises(ValueError):
        mark_dynamic(x, 0, min=3, max=2)
    for bounds in ({"min": 5}, {"max": 3}, {"min": 1, "max": 2}):
        with pytest.raises(ValueError, match="dimension 0 is 4, outside of"):
            mark_dynamic(torch.randn(4, 3), 0, **bounds)


def test_a_backend_may_refuse_symbols(capture):
    calls = []

    class NotYetSymbolic(Exception):
        pass

    def picky(module, inputs):
        calls.append([type(given) for given in inputs])
        if not all(isinstance(given, torch.Tensor) for given in inputs):
            raise NotYetSymbolic("a symbol")
        return module.forward

    from flambeau_capture import optimize

    def sized(x):
        return x * x.shape[0]

    fn = optimize(picky, raise_internal_errors=True)(sized)
    for size in (3, 4, 5, 3, 4, 5):
        agree(fn, sized, torch.randn(size))
    assert len(calls) == 4  # three sizes, and one try with a symbol
    ((name, why),) = compiler_of(fn).records.static_only
    assert name == "sized" and "a symbol" in why


def test_a_backend_that_says_so_is_never_asked(capture):
    seen = []

    def constant_sizes(module, inputs):
        seen.append(inputs)
        return module.forward

    constant_sizes.supports_symbols = False
    from flambeau_capture import optimize

    fn = optimize(constant_sizes, dynamic=True)(lambda x: x * x.shape[0])
    for size in (3, 4):
        fn(torch.randn(size))
    assert [len(inputs) for inputs in seen] == [1, 1]


def test_sizes_that_python_needs_are_fixed(capture, backend):
    def repeated(x):
        return [x * i for i in range(x.shape[0])][-1]

    fn = capture(repeated, dynamic=True)
    for size in (2, 3, 2, 3):
        agree(fn, repeated, torch.randn(size))
    assert len(backend) == 2


def test_modules_and_training(capture, backend):
    model = torch.nn.Sequential(
        torch.nn.Conv1d(2, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.0),
    )
    fn = capture(model)
    for size in (4, 5, 6, 7):
        x = torch.randn(size, 2, 8, requires_grad=True)
        agree(fn, model, x)
        (ours,) = torch.autograd.grad(fn(x).sum(), x)
        (theirs,) = torch.autograd.grad(model(x).sum(), x)
        assert torch.allclose(ours, theirs)
    assert len(backend) == 2


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", range(6))
def test_random_shapes_agree_with_eager(capture, seed):
    """Views, broadcasts, slices and reductions of sizes drawn anew for each call."""
    pick = torch.Generator().manual_seed(seed)

    def draw(low, high):
        return int(torch.randint(low, high, (), generator=pick))

    def mixed(x, y):
        b, t, c = x.shape
        z = x.transpose(1, 2).reshape(b * c, t)
        z = z[:, : t // 2] if t > 3 else z
        w = y.view(1, -1).expand(b, y.numel())
        return z.sum(), w.mean() * (t - 1), torch.zeros(b, t + c).shape[1]

    fn = capture(mixed)
    for _ in range(8):
        agree(fn, mixed, torch.randn(draw(1, 5), draw(1, 9), draw(1, 4)), torch.randn(draw(1, 6)))


def test_what_a_backend_decides_is_a_guard_and_later_nothing_can_be(capture):
    """The conditions of the environment become guards after the backend has had the graph."""
    from flambeau_capture import optimize

    sizes = []

    def tiling(module, inputs):
        size = next(n.meta["val"] for n in module.graph.nodes if n.op == "placeholder").shape[0]
        sizes.append(size)
        if size % 4 == 0:
            return lambda *given: [part + 1 for part in module.forward(*given)]
        return module.forward

    fn = optimize(tiling, dynamic=True, raise_internal_errors=True)(lambda x: x * 2)
    for size, more in ((8, 1), (12, 1), (7, 0), (16, 1), (9, 0), (10, 0)):
        assert torch.equal(fn(torch.ones(size)), torch.full((size,), 2.0 + more))
    assert len(sizes) == 2
    with pytest.raises(RuntimeError, match="guards are taken"):
        bool(sizes[0] > 100)
    assert bool(sizes[0] % 4 == 0)  # that is known


def test_a_backend_may_take_some_kinds_of_symbols(capture):
    from flambeau_capture import optimize

    seen = []

    def backend(module, inputs):
        seen.append([type(given) for given in inputs])
        return module.forward

    backend.supports_symbols = ("sizes",)
    fn = optimize(backend, raise_internal_errors=True)(lambda x, n, rate: x * x.shape[0] * n * rate)
    for size, n, rate in ((3, 2, 0.5), (4, 2, 0.5), (5, 2, 0.5), (5, 3, 0.5), (5, 3, 0.6)):
        assert torch.equal(fn(torch.ones(size), n, rate), torch.ones(size) * size * n * rate)
    assert seen == [[torch.Tensor], *[[int, torch.Tensor]] * 3]
    backend.supports_symbols = ("size",)
    with pytest.raises(ValueError, match="names \\['size'\\]"):
        optimize(backend)(lambda x: x)


def test_tensors_that_come_by_turns_in_two_ranks_are_two_graphs_each(capture, backend):
    def fn(x):
        return (x * 2).sum(-1)

    compiled = capture(fn)
    shapes = [(n, n + 1) if n % 2 else (n,) for n in range(3, 19)]
    for shape in shapes:
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), fn(x))
    assert len(backend) == 4  # a constant one and an open one for each


@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("dims", [2, 3])
def test_affine_grids_of_any_size(capture, backend, dims, align):
    def placed(x, theta):
        return torch.nn.functional.affine_grid(theta, list(x.shape), align_corners=align) * 2

    fn = capture(placed)
    for size in (3, 5, 4, 7):
        x, one = torch.randn(size, 2, *[size] * dims), torch.randn(size, dims, dims + 1)
        one.requires_grad_()
        other = one.detach().clone().requires_grad_()
        given, wanted = fn(x, other), placed(x, one)
        assert torch.equal(given, wanted) and given.stride() == wanted.stride()
        given.sum().backward(), wanted.sum().backward()
        assert torch.equal(one.grad, other.grad)
    assert len(backend) == 2
    with pytest.raises(ValueError, match="Expected a batch of"):
        fn(torch.randn(6, 2, *[6] * dims), torch.randn(6, dims, dims))
