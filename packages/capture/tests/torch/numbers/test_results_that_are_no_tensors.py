"""Results of autograd functions that are no tensors: they have no derivative."""

import flambeau_capture as fc
import pytest
import torch

T = "a tensor"
RESULTS = [
    (T, None), (None, T), (T, T, None), (T, None, T), (T, 3, "text"), (None, T, True, T, T),
    (2.5, T),
]  # fmt: skip


def function(results, materialize, marked):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            ctx.set_materialize_grads(materialize)
            made = [x * 2, (w * 3).sum(), x.sin()][: results.count(T)]
            if marked and len(made) > 1:
                ctx.mark_non_differentiable(made[-1])
            tensors = iter(made)
            return tuple([next(tensors) if each is T else each for each in results])

        @staticmethod
        def backward(ctx, *grads):
            x, w = ctx.saved_tensors
            of_x, of_w = torch.zeros_like(x), torch.zeros_like(w)
            for place, grad in enumerate(grads):
                if grad is not None and grad.dim() == 0:
                    of_w = of_w + grad * 3
                elif grad is not None:
                    of_x = of_x + grad * (place + 2)
            return of_x, of_w

    return Function


class Divided(torch.autograd.Function):
    """The same by `setup_context`."""

    @staticmethod
    def forward(x, w):
        return x * w.sum(), None, "kept"

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.count = len([each for each in output if each is None])

    @staticmethod
    def backward(ctx, grad, *others):
        x, w = ctx.saved_tensors
        assert others == (None, None)
        return grad * w.sum() * ctx.count, (grad * x).sum().expand_as(w)


def same_as_eager(kind, fullgraph):
    def fn(x, w):
        made = kind.apply(x, w)
        return made, [type(each).__name__ for each in made]

    seen = []
    for call in (fn, fc.compile(fn, backend="eager", fullgraph=fullgraph)):
        x, w = torch.arange(3.0).requires_grad_(), torch.ones(2, requires_grad=True)
        for used in (1, 3):
            made, names = call(x, w)
            tensors = [each for each in made if isinstance(each, torch.Tensor)]
            told = [each.requires_grad for each in tensors]
            sum(each.sum() for each in tensors if each.requires_grad and used).backward()
            values = [each.tolist() if isinstance(each, torch.Tensor) else each for each in made]
            seen.append((values, names, told, x.grad.tolist(), w.grad.tolist()))
    assert seen[:2] == seen[2:]


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("materialize", [True, False])
@pytest.mark.parametrize("results", RESULTS, ids=str)
def test_as_in_eager(results, materialize, marked) -> None:
    several = results.count(T) - (marked and results.count(T) > 1) > 1
    same_as_eager(function(results, materialize, marked), materialize or not several)


def test_by_setup_context() -> None:
    same_as_eager(Divided, True)


def test_no_tensor_at_all_is_left_to_eager() -> None:
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return None, 1

    def fn(x):
        return Nothing.apply(x), x + 1

    x = torch.ones(2, requires_grad=True)
    torch.testing.assert_close(fc.compile(fn, backend="eager")(x), fn(x))
