"""torch.autograd.Function under capture: one call of the graph, with both bodies in it."""

import itertools

import pytest
import torch
from flambeau_capture.api import compiler_of
from torch import nn


class Cube(torch.autograd.Function):
    """A derivative that autograd would not find by itself."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 7 * x * ctx.scale, None


class Pair(torch.autograd.Function):
    @staticmethod
    def forward(x, y):
        return x * y, (x > y).float()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y, output[0])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        x, y, product = ctx.saved_tensors
        one = grad * y if ctx.needs_input_grad[0] else None
        return one, grad * x + product * 0.5


def x(grad=True):
    return torch.randn(3, 4, requires_grad=grad)


def test_its_own_derivative_is_used(agree):
    agree(lambda a: Cube.apply(a.sin(), 2) + 1, x())
    agree(lambda a, k: Cube.apply(a, k).sum(), x(), 3.0)


def test_setup_context_results_without_derivative_and_needs_input_grad(agree):
    agree(lambda a, b: Pair.apply(a, b), x(), x())
    agree(lambda a, b: Pair.apply(a, b)[0] * 2, x(False), x())
    agree(lambda a, b: Pair.apply(a, b), x(False), x(False))


def test_the_same_tensor_twice(agree):
    agree(lambda a: Pair.apply(a, a)[0], x())


def test_parameters_and_tensors_of_the_surroundings(agree):
    layer = nn.Linear(4, 4)
    shift = torch.randn(4)

    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value, weight):
            ctx.save_for_backward(weight)
            ctx.middle = torch.tanh(value @ weight + shift)
            return ctx.middle * 2

        @staticmethod
        def backward(ctx, grad):
            (weight,) = ctx.saved_tensors
            inner = grad * 2 * (1 - ctx.middle**2)
            return inner @ weight.t(), None

    agree(lambda m, a: Shifted.apply(a, m.weight).sum(), layer, x())


def test_derivatives_that_are_not_contiguous(agree):
    class Flat(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.contiguous().view(-1).mul(2).view(grad.shape)

    agree(lambda a: Flat.apply(a).t().sum(), x())
    agree(lambda a: Flat.apply(a).sum(), x())


def test_inside_checkpoint_and_no_grad(agree):
    def run(a):
        with torch.no_grad():
            first = Cube.apply(a, 1)
        return first + Cube.apply(a, 2)

    agree(run, x())


def test_applied_in_a_module_that_trains(agree):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, value):
            return Cube.apply(self.lin(value), 0.5)

    agree(lambda m, a: m(a), Net(), x(False))


def test_second_derivatives_run_through_the_backward_body(capture, backend):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            ctx.save_for_backward(value)
            return value * value

        @staticmethod
        def backward(ctx, grad):
            (value,) = ctx.saved_tensors
            return grad * 2 * value

    compiled = capture(lambda a: Square.apply(a) * a)
    given = torch.randn(3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(compiled, (given,))
    assert len(backend) >= 1


seen = []


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        seen.append("forward")
        return value * 2

    @staticmethod
    def backward(ctx, grad):
        seen.append("backward")
        return grad * 2


@pytest.mark.parametrize("calls", [1, 2])
def test_side_effects_happen_when_they_do_in_eager(capture, calls):
    compiled = capture(lambda a: Noisy.apply(a + 1) + 1)
    for _ in range(calls):
        seen.clear()
        given = x()
        result = compiled(given)
        assert seen == ["forward"]
        result.sum().backward()
        assert seen == ["forward", "backward"]
        assert torch.equal(given.grad, torch.full((3, 4), 2.0))


def test_what_autograd_refuses_is_refused(agree):
    class Short(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            return a * b

        @staticmethod
        def backward(ctx, grad):
            return grad

    def run(a, b):
        out = Short.apply(a, b)
        return torch.autograd.grad(out.sum(), a)[0]

    agree(run, x(), x(), graphs=None, backward=False)


class Doubled(torch.autograd.Function):
    """Writes to its argument; a derivative that autograd would not find."""

    @staticmethod
    def forward(ctx, a, b=None):
        a.mul_(2)
        ctx.mark_dirty(a)
        ctx.save_for_backward(b)
        return a if b is None else (a, b * 3)

    @staticmethod
    def backward(ctx, *grads):
        (b,) = ctx.saved_tensors
        return (grads[0] * 5, None) if b is None else (grads[0] * b, grads[1] * 7)


def _same(a):
    y = a * 1
    z = Doubled.apply(y)
    return z is y, z + y


def _not_used(a):
    y = a * 1
    Doubled.apply(y)
    return y, y.sin()


def _with_a_view(a):
    y = a * 1
    part = y[0]
    Doubled.apply(y)
    return part.sin(), y


def _of_a_view(a):
    y = a * 1
    Doubled.apply(y[0])
    return y


@pytest.mark.parametrize("run", [_same, _not_used, _with_a_view, _of_a_view])
def test_arguments_written_to(agree, run):
    agree(run, x())


def test_an_argument_written_to_beside_another_result(agree):
    agree(lambda a, b: Doubled.apply(a * 1, b), x(), x())
    agree(lambda a: Doubled.apply(a * 3) + 1, x())


class DoubledBeside(torch.autograd.Function):
    """The same, of two arguments."""

    @staticmethod
    def forward(ctx, a, b):
        a.mul_(2)
        ctx.mark_dirty(a)
        return a

    @staticmethod
    def backward(ctx, grad):
        return grad, grad * 3


@pytest.mark.parametrize("leaf", [False, True])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_what_the_written_argument_is_as_a_result(capture, leaf, twice, first):
    """It is the argument itself but where grad is disabled and the argument requires it."""

    def outcome(run, wants, enabled):
        a = torch.ones(2, requires_grad=wants)
        a = a if leaf else a * 1
        try:
            with torch.set_grad_enabled(enabled):
                result = run(a, a if twice else torch.ones(2))
        except RuntimeError as error:
            return str(error), a.tolist()
        return result is a, result.requires_grad, result.is_leaf, a.requires_grad, a.tolist()

    def run(a, b):
        return DoubledBeside.apply(a, b)

    compiled = capture(run)
    for number in range(first, first + 4):
        case = (bool(number & 2), bool(number & 1))
        assert outcome(compiled, *case) == outcome(run, *case), case


class Halves(torch.autograd.Function):
    """Undefined gradients stay undefined."""

    @staticmethod
    def forward(ctx, a, both):
        ctx.set_materialize_grads(False)
        mask = a > 0
        if not both:
            ctx.mark_non_differentiable(mask)
        return a * 2, a * 3 if both else mask

    @staticmethod
    def backward(ctx, one, other):
        assert other is None
        return one * 5, None


def test_undefined_gradients(agree):
    agree(lambda a: Halves.apply(a, False), x())
    agree(lambda a: Halves.apply(a, True)[0], x(), graphs=None)


def asking(count, without, undefined):
    """A function of `count` results, the last without derivative if so asked, whose backward sees
    which derivatives there are; undefined: what it makes of those that are not."""

    class Asking(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(a, b)
            results = [a * b, a + b, a.sin() * b][:count]
            if without:
                ctx.mark_non_differentiable(results[-1])
            return tuple(results)

        @staticmethod
        def backward(ctx, *grads):
            a, b = ctx.saved_tensors
            known = [(n + 2, grad) for n, grad in enumerate(grads) if grad is not None]
            if undefined == "error" and len(known) < count:
                raise ValueError(f"{len(known)} of {count}")
            if not known:
                return None, b.cos()
            first = sum(grad * a * n for n, grad in known)
            return first, (None if grads[0] is None else grads[0] * b)

    return Asking.apply


@pytest.mark.parametrize("undefined", ["skip", "error"])
@pytest.mark.parametrize("without", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_which_derivatives_are_defined(capture, count, without, undefined):
    function = asking(count, without, undefined)

    def joined(a, b, used):
        results = function(a * 1, b * 1)
        return sum((results[place] * (place + 1)).sum() for place in used) + a.sum()

    def apart(a, b, used):
        results = function(a * 1, b * 1)
        return *((results[place] * 2).sum() for place in used), a.sum()

    def outcome(run, used):
        a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
        out = run(a, b, used)
        for end in out if isinstance(out, tuple) else (out,):
            try:
                end.backward(retain_graph=True)
            except Exception as error:
                return type(error), str(error)
        return [None if x.grad is None else x.grad.tolist() for x in (a, b)]

    for run in (joined, apart):
        places = range(count - without)
        for used in [()] + [each for n in (1, 2) for each in itertools.permutations(places, n)]:
            assert outcome(capture(run), used) == outcome(run, used), used


def answering(materialize, wanted, undefined):
    """A function that answers None, or a derivative, for its second argument; undefined: what it
    makes of a gradient that is None."""

    class Answering(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.set_materialize_grads(materialize)
            ctx.save_for_backward(a)
            return a * 2

        @staticmethod
        def backward(ctx, grad):
            (a,) = ctx.saved_tensors
            if grad is None:
                if undefined == "None":
                    return None, None
                grad = a.cos() if undefined == "value" else grad.sin()
            return grad * a * 3, (grad if wanted else None)

    return Answering.apply


def after_none(first, second):
    yield lambda a, b: second(b * 1, first(a * 2, a))
    yield lambda a, b: (second(b * 1, first(a * 2, a) * 3), a.sin())
    yield lambda a, b: (second(b, first(a * 2, b)), first(a, b))

    def of_both(a, b):
        inner = first(a * 1, b)
        return inner * 1, second(b, inner)

    yield of_both


@pytest.mark.parametrize("undefined", ["None", "value", "error"])
@pytest.mark.parametrize("materialize", [False, True])
@pytest.mark.parametrize("answers", [False, True])
def test_a_gradient_that_the_function_behind_leaves_undefined(
    capture, undefined, materialize, answers
):
    def outcome(run):
        a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
        out = run(a, b)
        for end in out if isinstance(out, tuple) else (out,):
            try:
                end.sum().backward(retain_graph=True)
            except Exception as error:
                return type(error), str(error)
        return [None if x.grad is None else x.grad.tolist() for x in (a, b)]

    first, second = answering(materialize, True, undefined), answering(True, answers, "None")
    for run in after_none(first, second):
        assert outcome(capture(run)) == outcome(run)


class Counted(torch.autograd.Function):
    """Writes, in backward, to what it holds on to."""

    @staticmethod
    def forward(ctx, a, seen):
        ctx.seen = seen
        return a.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.add_(1)
        return grad * ctx.seen, None


def test_what_backward_writes_to(capture):
    compiled = capture(lambda a, seen: Counted.apply(a, seen) * 2)
    for run in (lambda a, seen: Counted.apply(a, seen) * 2, compiled):
        a, seen = torch.ones(3, requires_grad=True), torch.zeros(1)
        total = run(a, seen).sum()
        total.backward(retain_graph=True)
        total.backward()
        assert seen.item() == 2 and a.grad.tolist() == [6.0] * 3


def for_transforms(names, style):
    """A function with rules that transforms of torch.func call, each other than its derivative."""
    both = {
        "backward": lambda ctx, g: g * 3 * ctx.saved_tensors[0],
        "jvp": lambda ctx, t: t * 5,
        "vmap": lambda info, dims, a: (made.apply(a) + 7, 0),
    }
    own = {name: staticmethod(both[name]) for name in ("backward", *names) if name in both}
    if "generate_vmap_rule" in names:
        own["generate_vmap_rule"] = True
    if style == "setup_context":
        own["forward"] = staticmethod(lambda a: a.tanh())
        own["setup_context"] = staticmethod(saves_both)
    else:
        own["forward"] = staticmethod(lambda ctx, a: saves_both(ctx, (a,), a) or a.tanh())
    made = type("Made", (torch.autograd.Function,), own)
    return made


def saves_both(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.save_for_forward(*inputs)


VMAP, JVP = ("generate_vmap_rule",), ("jvp",)
RULES_OF_TRANSFORMS = ((), VMAP, JVP, ("vmap",), VMAP + JVP, ("vmap", *JVP))


@pytest.mark.parametrize("style", ["setup_context", "forward"])
@pytest.mark.parametrize("names", RULES_OF_TRANSFORMS, ids="+".join)
def test_rules_of_transforms_do_not_end_a_graph(agree, names, style):
    kind = for_transforms(names, style)
    agree(lambda a: kind.apply(a.sin()) * 2, x())


@pytest.mark.parametrize("names", RULES_OF_TRANSFORMS[1:], ids="+".join)
def test_rules_of_transforms_are_called_by_transforms(agree, names):
    kind = for_transforms(names, "setup_context")
    agree(lambda a: torch.func.grad(lambda b: kind.apply(b).sum())(a.sin()), x(False), graphs=None)
    if "jvp" in names:
        agree(lambda a: torch.func.jvp(kind.apply, (a.sin(),), (a,)), x(False), graphs=None)
    else:
        agree(lambda a: torch.vmap(kind.apply)(a.sin()), x(False), graphs=None)


@pytest.mark.parametrize("style", ["setup_context", "forward"])
@pytest.mark.parametrize("names", RULES_OF_TRANSFORMS, ids="+".join)
def test_rules_of_transforms_of_one_applied_in_another(agree, names, style):
    inner = for_transforms(names, style)

    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(made := inner.apply(a))
            return made * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    agree(lambda a: Outer.apply(a.sin()) * 2, x())


def noted(style, told, answers):
    """A function of two tensors and a number that capture leaves to torch, for its backward notes
    what it does; `told` is what it tells its `ctx`."""

    def setup_context(ctx, inputs, output):
        a, b, ctx.k = inputs
        ctx.needs = ctx.needs_input_grad
        told(ctx, a, b, output)

    def forward(a, b, k):
        return answers(a, b, k)

    def backward(ctx, *grads):
        seen.append((ctx.k, ctx.needs, [None if grad is None else grad.sum() for grad in grads]))
        saved = sum(each.sum() for each in ctx.saved_tensors)
        grad = next(grad for grad in grads if grad is not None)
        return grad * (saved + ctx.k), grad if ctx.needs[1] else None, None

    def both(ctx, a, b, k):
        output = forward(a, b, k)
        setup_context(ctx, (a, b, k), output)
        return output

    own = {"backward": staticmethod(backward)}
    if style == "setup_context":
        own |= {"forward": staticmethod(forward), "setup_context": staticmethod(setup_context)}
    else:
        own["forward"] = staticmethod(both)
    return type("Noted", (torch.autograd.Function,), own)


TOLD = {
    "nothing": lambda ctx, a, b, outputs: None,
    "arguments": lambda ctx, a, b, outputs: ctx.save_for_backward(a, b),
    "results": lambda ctx, a, b, outputs: ctx.save_for_backward(outputs[0], b),
    "twice": lambda ctx, a, b, outputs: (ctx.save_for_backward(a), ctx.save_for_backward(b, b)),
    "without": lambda ctx, a, b, outputs: ctx.mark_non_differentiable(outputs[1]),
    "undefined": lambda ctx, a, b, outputs: ctx.set_materialize_grads(False),
    "kept": lambda ctx, a, b, outputs: (setattr(ctx, "more", [a, 1]), ctx.more.append(b)),
}


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("style", ["setup_context", "forward"])
def test_what_a_function_that_torch_applies_tells_its_context(capture, backend, same, style, told):
    kind = noted(style, TOLD[told], lambda a, b, k: (a.sin() * b * k, a > b))

    def run(a, b):
        made, flag = kind.apply(a * 1, b, 2)
        return made * 3, flag

    compiled, rows = capture(run), []
    for fn in (run, compiled):
        seen.clear()
        torch.manual_seed(0)
        found = []
        for needs in (False, True, False):
            a, b = x(), x(needs)
            made, flag = fn(a, b)
            made.sum().backward()
            found += [made.detach(), flag, a.grad, b.grad]
        rows.append((found, [*seen]))
    same(rows[1], rows[0])
    reasons = [report.reason.id for report in compiler_of(compiled).records.breaks]
    assert {*reasons} == {"FB0025"}


@pytest.mark.parametrize("style", ["setup_context", "forward"])
def test_an_argument_that_a_function_which_torch_applies_writes_to(capture, same, style):
    kind = noted(
        style, lambda ctx, a, b, outputs: ctx.mark_dirty(a), lambda a, b, k: (a.mul_(k), b + 1)
    )

    def run(a, b):
        copy = a * 1
        made, other = kind.apply(copy, b, 2)
        return made is copy, made * 3, other

    found = []
    for fn in (run, capture(run)):
        seen.clear()
        a, b = torch.ones(2, 2, requires_grad=True), torch.ones(2, 2)
        for _ in range(2):
            is_same, made, other = fn(a, b)
            (made.sum() + other.sum()).backward()
            found.append((is_same, made.detach(), a.grad.clone(), [*seen]))
            a.grad = None
    same(found[2:], found[:2])
