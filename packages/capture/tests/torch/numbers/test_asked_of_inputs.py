"""What a program asks of a tensor besides what guards compare: a later tensor answers anew."""

import pytest
import torch

base = torch.randn(4, 3)
leaf = torch.randn(3, requires_grad=True)


def offset(x):
    return x.storage_offset(), x * 2


def offset_of_a_view(x):
    return x[1:].storage_offset(), x * 2


def shared(x):
    return x.is_shared(), x * 2


def version(x):
    before = x._version
    x.detach().add_(1)
    return before, x._version


def history(x):
    return x.is_leaf, x.grad_fn is None, x * 2


def place(x):
    return x.output_nr, x * 2


PAIRS = {
    offset: (lambda: base[1], lambda: base[2], lambda: base[0]),
    offset_of_a_view: (lambda: base[1], lambda: base[2]),
    shared: (lambda: torch.ones(3), lambda: torch.ones(3).share_memory_()),
    version: (lambda: torch.zeros(3), lambda: torch.zeros(3).add_(1).add_(1)),
    history: (lambda: leaf, lambda: leaf * 2, lambda: leaf),
    place: (lambda: (leaf * 2).split(1)[0], lambda: (leaf * 2).split(1)[1]),
}


@pytest.mark.parametrize("fn", PAIRS, ids=lambda fn: fn.__name__)
def test_a_later_tensor_answers_anew(capture, same, fn):
    compiled = capture(fn)
    for make in PAIRS[fn]:
        same(compiled(make()), fn(make()))


def test_derivatives_go_on_where_the_argument_was_computed(capture):
    def fn(x):
        loss = (x**2).sum()
        loss.backward()
        return loss

    compiled, first, later = capture(fn), torch.ones(3, requires_grad=True), torch.ones(3)
    later.requires_grad_()
    for given in (first, later * 3, first):
        compiled(given)
    assert torch.equal(later.grad, torch.full((3,), 18.0))
    assert torch.equal(first.grad, torch.full((3,), 4.0))


def test_flags_of_computed_tensors_are_refused_as_in_eager(capture):
    def fn(x):
        x.requires_grad_(False)
        return x * 2

    compiled = capture(fn)
    compiled(torch.ones(3, requires_grad=True))
    with pytest.raises(RuntimeError, match="leaf variables"):
        compiled(torch.ones(3, requires_grad=True) * 3)


def test_hooks_on_every_module_that_are_set_in_the_call(capture):
    from torch.nn.modules.module import register_module_forward_hook

    layer, seen = torch.nn.Linear(2, 2), []

    def fn(x):
        handle = register_module_forward_hook(lambda module, given, out: seen.append(module))
        y = layer(x)
        handle.remove()
        return y, layer(x)

    compiled = capture(fn)
    for _ in range(2):
        compiled(torch.randn(1, 2))
    assert seen == [layer, layer]


class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


READS = {
    "product": lambda x: x * 2,
    "leaf": lambda x: (x.is_leaf, x.detach() + 1),
    "shape": lambda x: x.new_ones(x.shape) + 1,
    "write": lambda x: x.add_(1),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("later", (False, True))
def test_a_view_whose_history_torch_refuses_to_make(read, later, capture, same):
    """Of a result of an autograd function, its base written to: eager's answer or its error."""

    def given():
        base = torch.ones(3, requires_grad=True) * 2
        view = Viewed.apply(base)
        base.add_(1)
        return view

    def outcome(fn):
        try:
            return fn(given()), None
        except RuntimeError as error:
            return None, str(error)

    compiled = capture(read)
    if later:
        compiled(torch.ones(3))
    (result, error), (expected, refused) = outcome(compiled), outcome(read)
    assert error == refused
    same(result, expected)
