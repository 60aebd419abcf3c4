"""`.data = ...`, new parameters, `requires_grad_(False)`, tensors by their old constructors."""

import copy
import warnings

import pytest
import torch
from torch import nn


def x(*shape, grad=False):
    return torch.randn(*(shape or (2, 3)), requires_grad=grad)


def follow(capture, backend, same, step, make, calls=3, graphs=1):
    """`step(module, value)` captured and in eager, with all that the module holds after each."""
    backend.clear()
    torch.manual_seed(0)
    ours = make()
    theirs = copy.deepcopy(ours)
    compiled = capture(step)
    for _ in range(calls):
        value = x()
        same(compiled(ours, value), step(theirs, value), "result")
        for (name, one), (_, other) in zip(_state(ours), _state(theirs), strict=True):
            same(one, other, name)
            assert type(one) is type(other) and one.requires_grad == other.requires_grad
    assert len(backend) == graphs


def _state(module):
    return [*module.named_parameters(), *module.named_buffers()]


def linear():
    return nn.Linear(3, 2)


def test_a_moving_average_by_data(capture, backend, same):
    def step(pair, value):
        for slow, fast in zip(pair[0].parameters(), pair[1].parameters()):
            slow.data = 0.9 * slow.data + 0.1 * (fast.data + 1)
        with torch.no_grad():
            return pair[0](value)

    def make():
        return nn.ModuleList([linear(), linear()])

    follow(capture, backend, same, step, make)


def test_new_data_and_views_of_the_old(capture, same):
    def step(held, value):
        held.data = held.data + value
        view = held.view(6)
        held.data = value * 2
        return held + view.view(2, 3)

    ours, theirs, value = torch.zeros(2, 3), torch.zeros(2, 3), x()
    compiled = capture(step)
    for _ in range(2):
        same(compiled(ours, value), step(theirs, value), "result")
        same(ours, theirs, "tensor")


def test_a_leaf_on_new_data_is_differentiated_in_python(capture, same):
    def step(module, value):
        module.weight.data = module.weight.data * 0.5
        return module(value).sum()

    ours = linear()
    theirs = copy.deepcopy(ours)
    value = x()
    compiled = capture(step)
    for _ in range(2):
        for module, function in ((ours, compiled), (theirs, step)):
            module.zero_grad()
            function(module, value).backward()
        same(ours.weight.grad, theirs.weight.grad, "derivative")
        same(ours.weight, theirs.weight, "weight")


def test_data_shares_memory_with_what_it_was_given(capture):
    def step(held, value):
        fresh = value + 1
        held.data = fresh
        return fresh

    held = torch.zeros(2, 3)
    fresh = capture(step)(held, x())
    fresh.zero_()
    assert not held.any() and held.data_ptr() == fresh.data_ptr()


def test_a_parameter_that_is_set(capture, backend, same):
    def step(module, value):
        module.weight = nn.Parameter(module.weight.detach() * 2)
        return value + 1

    follow(capture, backend, same, step, linear, graphs=2)


def test_a_parameter_that_is_set_and_used(capture, backend, same):
    def step(module, value):
        with torch.no_grad():
            module.weight = nn.Parameter(module.weight * 0.5, requires_grad=False)
        return module(value)

    follow(capture, backend, same, step, linear, graphs=2)


def test_a_new_parameter_is_a_leaf(capture):
    def step(module, value):
        module.register_parameter("gain", nn.Parameter(value.sum(0)))
        return module

    module = capture(step)(nn.Module(), x())
    assert isinstance(module.gain, nn.Parameter)
    assert module.gain.is_leaf and module.gain.requires_grad
    assert list(dict(module.named_parameters())) == ["gain"]


def test_modules_made_in_the_frame(capture, backend, same):
    def step(value):
        with torch.no_grad():
            return nn.Linear(3, 2)(value)

    compiled = capture(step)
    for seed in range(2):
        value = x()
        torch.manual_seed(seed)
        found = compiled(value)
        torch.manual_seed(seed)
        same(found, step(value), "result")
    assert len(backend) == 1


def test_parameters_frozen_for_a_while(capture, backend, same):
    def step(module, value):
        module.requires_grad_(False)
        frozen = module(value)
        module.requires_grad_(True)
        return frozen, module(value)

    ours = linear()
    theirs = copy.deepcopy(ours)
    value = x()
    frozen, free = capture(step)(ours, value)
    expected = step(theirs, value)
    same((frozen, free), expected, "result")
    assert not frozen.requires_grad and free.requires_grad and ours.weight.requires_grad
    free.sum().backward()
    expected[1].sum().backward()
    same(ours.weight.grad, theirs.weight.grad, "derivative")
    assert len(backend) == 1


def test_parameters_that_stay_frozen(capture):
    def step(module, value):
        for parameter in module.parameters():
            parameter.requires_grad = False
        return module(value)

    module = linear()
    assert not capture(step)(module, x()).requires_grad
    assert not module.weight.requires_grad and not module.bias.requires_grad


def test_state_dicts(capture, backend, same):
    def step(pair, value):
        found = pair[1].state_dict()
        with torch.no_grad():
            for name, tensor in pair[0].state_dict().items():
                tensor.mul_(0.9).add_(found[name], alpha=0.1)
        return pair[0](value), list(found), found._metadata

    def make():
        return nn.ModuleList([linear(), linear()])

    follow(capture, backend, same, step, make)


def test_attributes_of_an_ordered_dict(capture):
    def step(found, value):
        return value + 1, getattr(found, "_metadata", None), hasattr(found, "other")

    found = linear().state_dict()
    compiled = capture(step)
    value = x()
    assert compiled(found, value)[1] == found._metadata
    found.other = 1
    assert compiled(found, value)[2] is True


def test_old_constructors(agree):
    def run(value):
        ints = torch.IntTensor([2, 3])
        return value.sum() * ints, torch.LongTensor([1]), torch.Tensor([1, 2])

    agree(run, x())


def test_kernels_that_the_program_chooses(agree, capture):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(value):
        with sdpa_kernel(SDPBackend.MATH), torch.backends.cudnn.flags(enabled=False):
            out = nn.functional.scaled_dot_product_attention(value, value, value)
            inside = torch.backends.cuda.flash_sdp_enabled()
        return out, inside, torch.backends.cuda.flash_sdp_enabled()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(run, x(1, 2, 3, 4))

    def broken(value):
        with sdpa_kernel([SDPBackend.MATH]):
            scale = float(value.sum())
            return value * scale, torch.backends.cuda.flash_sdp_enabled()

    before = torch.backends.cuda.flash_sdp_enabled()
    assert capture(broken)(x())[1] is False
    assert torch.backends.cuda.flash_sdp_enabled() is before


def test_derivatives_that_are_clipped(agree):
    def run(module, value):
        module(value).sum().backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        nn.utils.clip_grad_value_(module.parameters(), 0.1)
        return norm.detach(), module.weight.grad

    agree(run, linear(), x(), backward=False)


def test_hooks_set_and_removed_in_the_frame(capture, backend, same):
    def step(module, value):
        seen = []
        handle = module.register_forward_hook(lambda mod, args, out: seen.append(out.sum()))
        first = module(value)
        handle.remove()
        return first, module(value), seen

    module, value = linear(), x()
    compiled = capture(step)
    for _ in range(2):
        same(compiled(module, value), step(module, value), "result")
    assert len(backend) == 1 and not module._forward_hooks


@pytest.mark.parametrize("read", ["value", "grad", "rank"])
@pytest.mark.parametrize("change", [torch.Tensor.double, lambda data: data.new_ones(5)])
def test_a_parameter_whose_gradient_does_not_fit_its_new_data(capture, change, read):
    """As it is for a while in `Module.to`: an operation on it is left to eager."""
    uses = {
        "value": lambda p, x: (p * 2).sum() + x,
        "grad": lambda p, x: p.grad.sum() + x,
        "rank": lambda p, x: x + p.dim(),
    }

    def outcome(call):
        held = torch.nn.Parameter(torch.ones(3))
        (held * held).sum().backward()
        held.data = change(held.data)
        return call(held, torch.ones(1))

    assert torch.equal(outcome(capture(uses[read])), outcome(uses[read]))


@pytest.mark.parametrize(
    "own",
    [
        lambda p: p.data,
        lambda p: p.data.to("cpu"),
        lambda p: p.data.contiguous(),
        lambda p: p.detach(),
        lambda p: p,
        lambda p: p.data.float().cpu()[:],
        lambda p: p.data.t().t(),
    ],
)
def test_the_data_that_a_parameter_has_is_no_change(capture, backend, same, own):
    """It is differentiated in the same graph, and writes by either name are the other's."""

    def step(module, value):
        kept = module.weight.data
        for parameter in module.parameters():
            parameter.data = own(parameter)
        kept.mul_(2)
        return module(value).sum()

    def with_gradients(module, value):
        module.zero_grad()
        loss = step(module, value)
        loss.backward()
        return [p.grad for p in module.parameters()]

    torch.manual_seed(0)
    ours = linear()
    theirs, compiled = copy.deepcopy(ours), capture(step)
    for _ in range(3):
        value, (_, versions) = x(), zip(*[(p, p._version) for p in ours.parameters()])
        wanted = with_gradients(theirs, value)
        ours.zero_grad()
        compiled(ours, value).backward()
        same([p.grad for p in ours.parameters()], wanted, "gradients")
        same(_state(ours), _state(theirs), "parameters")
        assert [p._version for p in ours.parameters()] == [*versions]
    assert len(backend) == 1
