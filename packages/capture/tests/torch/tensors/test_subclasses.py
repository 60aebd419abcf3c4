"""`__torch_function__`: subclasses of tensors, and objects, that say what torch's functions do."""

import pytest
import torch
from flambeau_capture import graph_break
from torch import nn


class Tracked(torch.Tensor):
    """Carries a number along; results have one more."""

    @staticmethod
    def __new__(cls, data, meta=None):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, meta=None):
        self.meta = meta

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        known = [arg.meta for arg in args if isinstance(arg, Tracked) and hasattr(arg, "meta")]
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, Tracked) and known:
            result.meta = known[0] + 1
        return result

    @property
    def twice(self):
        return self + self

    def named(self, k):
        return self * k, self.meta


class Renamed(torch.Tensor):
    """`mul` adds."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        func = torch.add if func is torch.mul else func
        return super().__torch_function__(func, types, args, kwargs or {})


class Plain(torch.Tensor):
    pass


class Own(torch.Tensor):
    def __add__(self, other):
        return "added", other

    def sum(self, *args):
        return super().sum(*args) * 100

    def __len__(self):
        return 77


HANDLED = {}


class Diagonal:
    def __init__(self, size, value):
        self.size, self.value = size, value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLED or not all(issubclass(k, (torch.Tensor, Diagonal)) for k in types):
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


def handles(function):
    return lambda implementation: HANDLED.setdefault(function, implementation)


@handles(torch.mean)
def _mean(diagonal):
    return diagonal.value / diagonal.size


@handles(torch.matmul)
def _matmul(left, right):
    return left.value * right if isinstance(left, Diagonal) else left * right.value


class Weight(nn.Parameter):
    pass


def tracked(meta=5):
    return Tracked(torch.ones(3), meta)


def alike(ours, theirs):
    assert type(ours) is type(theirs), (ours, theirs)
    if isinstance(ours, torch.Tensor):
        assert vars(ours) == vars(theirs)
        one, other = (value.as_subclass(torch.Tensor) for value in (ours, theirs))
        assert one.requires_grad == other.requires_grad and torch.equal(one, other)
    elif isinstance(ours, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            alike(one, other)
    else:
        assert ours == theirs


@pytest.fixture
def agree(capture, backend):
    def run(fn, *makers, graphs=1):
        compiled = capture(fn)
        for _ in range(2):
            alike(compiled(*(make() for make in makers)), fn(*(make() for make in makers)))
        assert backend if graphs is None else len(backend) == graphs

    return run


def numbers():
    return torch.arange(3.0)


def test_an_overriding_class_is_told_what_eager_tells_it(agree):
    agree(
        lambda s, t: (torch.mul(s, t), s * t),
        lambda: torch.full((3,), 3.0).as_subclass(Renamed),
        numbers,
    )


def test_attributes_travel_with_results(agree):
    def fn(t):
        made = Tracked(t, 1)
        result = (made + 1).twice
        return result, result.meta, made.meta

    agree(fn, numbers)


def test_methods_properties_and_attributes_of_an_existing_one(agree):
    def fn(m, t):
        return m.named(t), m.twice.meta, m.meta, isinstance(m, Tracked), m.shape, m.dtype, len(m)

    agree(fn, tracked, numbers)


def test_containers_of_results_become_the_class(agree):
    def fn(m, t):
        first, second = (m * t).split([1, 2])
        return first, second, torch.stack([m, m]), list(m), m[0], torch.nn.functional.relu(m)

    agree(fn, tracked, numbers)


def test_operators_and_methods_that_the_class_defines(agree):
    agree(
        lambda s, t: (s + t, s.sum(), len(s), t * 2, s * t),
        lambda: torch.ones(3).as_subclass(Own),
        numbers,
    )


def test_objects_that_are_no_tensors(agree):
    def fn(t):
        three = Diagonal(3, t)
        return torch.mean(three), torch.matmul(three, t), torch.matmul(t, Diagonal(2, t))

    agree(fn, numbers)


def test_a_function_that_no_class_implements_raises(agree):
    def fn(t):
        try:
            return torch.sin(Diagonal(3, t))
        except TypeError:
            return t + 2

    agree(fn, numbers)


class Unseen(torch.Tensor):
    """torch works on it as on a plain tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl


CLASSES = (torch.Tensor, Plain, Renamed, Unseen, nn.Parameter)
BEFORE = {
    "an argument": lambda t: t,
    "a result": lambda t: t * 2,
    "of another class": lambda t: t.as_subclass(Plain),
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("ends", [False, True])
def test_another_class_is_another_tensor_on_the_same_memory(agree, kind, before, ends):
    def fn(t):
        given = BEFORE[before](t)
        made = given.as_subclass(kind)
        if ends:
            graph_break()
        with torch.no_grad():
            made.add_(1)
        return made, given, made is given, isinstance(made, kind), made.detach() * 3, made.sum()

    agree(fn, numbers, graphs=None)
    agree(fn, lambda: numbers().requires_grad_(), graphs=None)


def test_attributes_are_written_and_guarded(capture, backend):
    def fn(m, t):
        m.note = m.meta + 1
        return (m * t).as_subclass(torch.Tensor)

    compiled = capture(fn)
    for meta in (2, 2, 3):
        given = tracked(meta)
        assert torch.equal(compiled(given, numbers()), numbers())
        assert given.note == meta + 1
    assert len(backend) == 2  # the attribute is read: another number is another graph


def test_another_size_or_class_is_compiled_again(capture, backend):
    compiled = capture(lambda m, t: torch.mul(m, t))
    renamed = torch.ones(3).as_subclass(Renamed)
    assert type(compiled(tracked(), numbers())) is Tracked
    assert type(compiled(renamed, numbers())) is Renamed
    assert torch.equal(compiled(renamed, numbers()).as_subclass(torch.Tensor), numbers() + 1)
    assert torch.equal(compiled(torch.ones(3), numbers()), numbers())
    assert len(backend) == 3


def test_gradients_reach_a_leaf_of_a_subclass(capture):
    leaf = torch.ones(3).as_subclass(Plain).requires_grad_()
    result = capture(lambda s, t: torch.mul(s, t))(leaf, numbers())
    assert type(result) is Plain
    result.sum().backward()
    assert torch.equal(leaf.grad.as_subclass(torch.Tensor), numbers())


def test_in_place_changes_reach_the_tensor(capture):
    given = torch.ones(3).as_subclass(Plain)
    result = capture(lambda s: s.mul_(3))(given)
    assert result is given and torch.equal(given.as_subclass(torch.Tensor), torch.full((3,), 3.0))


def test_disabled_for_a_block_also_across_a_break(agree):
    def fn(m, t):
        with torch._C.DisableTorchFunctionSubclass():
            first = m + t
            graph_break()
            return first, m * t.sum(), type(m + t).__name__

    agree(fn, tracked, numbers, graphs=2)


def test_a_parameter_of_a_subclass(agree):
    module = nn.Module()
    module.weight = Weight(torch.ones(3))
    module.forward = lambda t: (module.weight * t, isinstance(module.weight, Weight))
    agree(lambda t: module(t), numbers)


class Notified(torch.nn.Parameter):
    """A parameter whose class is notified, and hands on what it does not know."""

    def __new__(cls, data):
        return torch.Tensor._make_subclass(cls, data, False)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.split:
            return [cls(part) for part in super().__torch_function__(func, types, args, kwargs)]
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize(
    "use",
    [
        lambda p, x: torch.nn.functional.linear(x, p),
        lambda p, x: (p * 2).exp() + x.sum(),
        lambda p, x: p.t() @ torch.ones(4, 2),
        lambda p, x: torch.add(input=p, other=x[0]),
        lambda p, x: p.view(2, 6)[0],
        lambda p, x: p.shape[0] * x,
    ],
)
def test_a_parameter_hands_on_to_what_parameters_do(capture, backend, same, use):
    held = Notified(torch.randn(4, 3))

    def step(x):
        result = use(held, x)
        return result, type(result) is torch.Tensor

    x = torch.ones(2, 3)
    same(capture(step)(x), step(x), "result")
    assert len(backend) == 1
