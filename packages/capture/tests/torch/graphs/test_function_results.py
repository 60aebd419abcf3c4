"""What forward of an autograd function is told, and its results: eager's, object by object."""

import pytest
import torch


class Asking(torch.autograd.Function):
    """What its context says before there is anything to say."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        return x * 2, ctx.needs_input_grad, len(ctx.saved_tensors), torch.is_grad_enabled()

    @staticmethod
    def backward(ctx, grad, *rest):
        return grad * len(ctx.saved_tensors) * 2, None


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_what_forward_asks_its_context(capture, same, mode, requires_grad):
    def run(x):
        with mode():
            return Asking.apply(x, 3)

    x = torch.ones(3, requires_grad=requires_grad)
    same(capture(run, nopython=True)(x), run(x))


OUTSIDE = torch.ones(3)
RETURNED = {
    "one twice": lambda x: (lambda y: (y, y))(x * 2),
    "an argument twice": lambda x: (x, x),
    "a view twice": lambda x: (lambda y: (y, y, x * 3))(x[:2]),
    "an argument and another": lambda x: (x, x * 2, x),
    "one from outside": lambda x: (OUTSIDE, x * 2),
}


@pytest.mark.parametrize("returned", RETURNED)
def test_which_results_are_one(capture, same, returned):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return RETURNED[returned](x)

        @staticmethod
        def backward(ctx, *grads):
            return sum(grad.sum() * (place + 2) for place, grad in enumerate(grads)).expand(3)

    def run(x):
        found = Function.apply(x)
        return (*found, [[a is b for a in (*found, x)] for b in found])

    def outcome(run):
        OUTSIDE.detach_()
        x = torch.arange(1.0, 4, requires_grad=True)
        *found, alike = run(x)
        sum(each.sum() * place for place, each in enumerate(found, 1)).backward()
        outside = [each is OUTSIDE for each in found]
        return found, [[a is b for a in found] for b in found], alike, outside, x.grad

    expected = outcome(run)
    same(outcome(capture(run)), expected)
    OUTSIDE.detach_()


WRONG = {"shape": lambda g: g.sum().expand(7), "written": None}


@pytest.mark.parametrize("wrong", WRONG)
def test_errors_name_the_function(capture, wrong):
    class Strange(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            made = x * 2
            ctx.save_for_backward(made)
            return made

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0] if WRONG[wrong] is None else WRONG[wrong](grad)

    def run(x):
        return Strange.apply(x)

    def outcome(run):
        found = run(torch.ones(3, requires_grad=True))
        with pytest.raises(RuntimeError) as error:
            (found.add_(1) if WRONG[wrong] is None else found).sum().backward()
        return found.grad_fn.name(), str(error.value)

    assert outcome(capture(run)) == outcome(run)
