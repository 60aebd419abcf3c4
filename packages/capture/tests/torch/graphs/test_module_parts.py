"""nn.Module beyond forward: hooks, parametrizations, tied and changed weights, state."""

import inspect

import flambeau_capture as fc
import pytest
import torch
from flambeau_capture import optimize
from torch import nn
from torch.nn.utils import parametrizations, parametrize


def x(*shape, grad=False):
    return torch.randn(*(shape or (3, 4)), requires_grad=grad)


def outer(module):
    """The module inside of another, called once."""

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = module

        def forward(self, *args, **kwargs):
            return self.inner(*args, **kwargs) * 2

    return Outer()


def call(module, *args, **kwargs):
    return module(*args, **kwargs)


def test_hooks_of_a_submodule_are_in_the_graph(agree):
    inner = nn.Linear(4, 4)
    inner.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    inner.register_forward_hook(lambda m, args, out: out + args[0].sum())
    agree(call, outer(inner), x())


def test_hooks_with_keywords(agree):
    class Scale(nn.Module):
        def forward(self, value, k=1):
            return value * k

    inner = Scale()
    inner.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"k": kwargs["k"] + 1}), with_kwargs=True
    )
    inner.register_forward_hook(
        lambda m, args, kwargs, out: out - kwargs["k"], with_kwargs=True, always_call=True
    )
    agree(call, outer(inner), x(), k=3)


def test_hooks_of_a_compiled_module_itself(capture):
    module = nn.Linear(4, 4)
    module.register_forward_hook(lambda m, args, out: out + 1)
    given = x()
    assert torch.equal(capture(module)(given), module(given))


def test_a_hook_that_comes_later(capture):
    module = nn.Sequential(nn.Linear(4, 4))
    compiled = capture(module)
    given = x()
    before = compiled(given)
    handle = module[0].register_forward_hook(lambda m, args, out: out * 10)
    assert torch.equal(compiled(given), module(given))
    handle.remove()
    assert torch.equal(compiled(given), before)


@pytest.mark.parametrize(
    "wrap",
    [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal],
)
def test_parametrizations(agree, wrap):
    agree(call, outer(wrap(nn.Linear(4, 4))), x(), graphs=None)


def test_an_own_parametrization(agree):
    class Symmetric(nn.Module):
        def forward(self, weight):
            return weight.triu() + weight.triu(1).T

    module = nn.Linear(4, 4)
    parametrize.register_parametrization(module, "weight", Symmetric())
    agree(call, module, x())


def test_tied_weights(agree):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(5, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    agree(call, Tied(), torch.tensor([1, 2]))


def test_buffers_and_parameters_that_change(agree):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.register_buffer("count", torch.zeros(()))
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, value):
            self.count += 1
            self.mean = self.mean * 0.9 + value.mean(0) * 0.1
            with torch.no_grad():
                self.weight.mul_(0.5)
                self.weight.copy_(self.weight + 0.1)
            self.weight.data.add_(1)
            return value * self.weight + self.count + self.mean

    agree(call, Counter(), x(), graphs=2, calls=5, backward=False)


def test_a_buffer_that_is_replaced_by_every_call_becomes_an_input(agree, backend):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(3, 4))

        def forward(self, value):
            self.last = self.last + value
            return self.last * 2

    agree(call, Last(), x(), graphs=2, calls=6)
    assert any(node.op == "get_attr" for node in backend.graphs[0].graph.nodes)
    assert not any(node.op == "get_attr" for node in backend.graphs[1].graph.nodes)


def test_modes_change_inside(agree):
    def run(module, value):
        module.eval()
        first = module(value)
        module.train()
        return first + module(value)

    agree(run, nn.Sequential(nn.Linear(4, 4), nn.Dropout()), x())


def test_lazy_modules(agree):
    agree(call, nn.Sequential(nn.LazyLinear(5), nn.ReLU()), x(), graphs=None, backward=False)


def test_an_own_call(agree):
    class Twice(nn.Module):
        def __call__(self, value):
            return super().__call__(value) + 1

        def forward(self, value):
            return value * 2

    agree(call, Twice(), x())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_modules(agree, kind):
    agree(call, kind(4, 5, 2, batch_first=True, bidirectional=True), x(2, 3, 4))
    agree(call, kind(4, 5, dropout=0.5), x(2, 3, 4), x(1, 3, 5) if kind is not nn.LSTM else None)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_recurrent_cells(agree, kind):
    agree(call, kind(4, 5), x())


def test_embeddings(agree):
    ids = torch.tensor([[1, 2], [0, 1]])
    agree(call, nn.Embedding(5, 4, padding_idx=0, max_norm=None), ids)
    agree(call, nn.EmbeddingBag(5, 4), ids)


def test_sparse_embedding(capture, backend):
    import copy

    module = nn.Embedding(5, 4, sparse=True)
    twin = copy.deepcopy(module)
    ids = torch.tensor([1, 2, 1])
    capture(lambda: module(ids).sum())().backward()
    twin(ids).sum().backward()
    assert module.weight.grad.is_sparse and len(backend) == 1
    assert torch.equal(module.weight.grad.to_dense(), twin.weight.grad.to_dense())


def test_attention_modules(agree):
    agree(call, nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), x(2, 3, 4))
    agree(call, nn.MultiheadAttention(4, 2), x(2, 3, 4), x(2, 3, 4), x(2, 3, 4))


def test_zero_grad_and_grads_that_are_read(agree):
    def run(module, value):
        module.zero_grad()
        out = module(value)
        return out, module.weight.grad is None

    agree(run, nn.Linear(4, 4), x())


def test_a_scripted_function(agree):
    def scaled(value, k: int):
        return value * k

    scripted = torch.jit.script(scaled)
    agree(lambda value: scripted(value, 3) + 1, x())


def test_tensors_can_be_swapped_after_a_call(capture):
    """Nothing refers weakly to a tensor that was captured: torch refuses to swap such a one."""
    module, value = nn.Linear(4, 4), x()
    compiled = capture(lambda given: module(given) + given)
    compiled(value)
    torch.utils.swap_tensors(module.weight, nn.Parameter(torch.zeros(4, 4)))
    torch.utils.swap_tensors(value, torch.ones(2, 4))
    assert torch.equal(compiled(value), module.bias.expand(2, 4) + 1)
    torch.utils.swap_tensors(module.weight, nn.Parameter(torch.zeros(4, 4, dtype=torch.double)))
    torch.utils.swap_tensors(module.bias, nn.Parameter(torch.zeros(4, dtype=torch.double)))
    assert torch.equal(compiled(value.double()), torch.ones(2, 4, dtype=torch.double))


def test_signatures_of_compiled_modules_are_those_of_modules():
    module = torch.nn.Linear(2, 2)
    compiled = fc.compile(module, "eager")
    again = fc.compile(compiled, "eager")
    assert inspect.signature(compiled) == inspect.signature(module) == inspect.signature(again)
    assert inspect.signature(compiled.forward) == inspect.signature(module.forward)
    assert not hasattr(type(compiled), "__signature__")


@pytest.mark.parametrize("removed", [False, True], ids=["kept", "removed"])
@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook", "full_backward_hook"])
def test_hooks_that_a_function_puts_on_a_module_it_does_not_call_add_up(kind, removed):
    """Each call puts another one there, under a number of its own."""
    module, other = nn.Linear(3, 3), nn.Linear(3, 3)

    def run(value):
        handle = getattr(other, f"register_{kind}")(lambda *given: None)
        if removed:
            handle.remove()
        return module(value)

    compiled = optimize("eager")(run)
    for _ in range(3):
        compiled(torch.ones(2, 3))
    table = {"full_backward_hook": "_backward_hooks"}.get(kind, f"_{kind}s")
    assert len(getattr(other, table)) == (0 if removed else 3)
