# ruff: noqa: B007, B018
# (the programs under test are written as users write them)
"""nn.Module: calling, parameters and buffers, hooks, containers, state that changes."""

import copy
import weakref

import pytest
import torch
from torch import nn


def x(*shape):
    return torch.randn(*(shape or (2, 4)))


@pytest.fixture
def agree(capture, backend, same):
    """A compiled module and its twin give the same results and end in the same state."""

    def run(module, *args, graphs=1, calls=2, **kwargs):
        backend.clear()
        twin = copy.deepcopy(module)
        compiled = capture(module)
        for seed in range(calls):
            torch.manual_seed(seed)
            ours = compiled(*args, **kwargs)
            torch.manual_seed(seed)
            same(ours, twin(*args, **kwargs))
        same(dict(module.state_dict()), dict(twin.state_dict()))
        if graphs is not None:
            assert len(backend) == graphs, f"{len(backend)} graphs, not {graphs}"
        return compiled

    return run


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"act": nn.GELU(), "norm": nn.LayerNorm(4)})
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("nothing", None)
        self.calls = 0
        self.cache = {}
        self.config = {"k": 2}

    def forward(self, t, flag=True):
        self.calls += 1
        self.count += 1
        for i, layer in enumerate(self.layers):
            t = t + layer(t) * i
        for name, module in self.named.items():
            t = module(t)
        if self.nothing is None and flag:
            t = t * self.scale * self.config["k"]
        self.cache["last"] = t
        return t, len(self.layers), [n for n, _ in self.named_parameters()][0]


def test_a_bit_of_everything(agree):
    agree(Net(), x(), graphs=None)


def test_state_of_the_module_changes(capture, backend):
    module = Net()

    class Quiet(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.seen = []

        def forward(self, t):
            out = self.lin(t)
            self.last = out
            self.seen.append(t.shape[0])
            return out

    module = Quiet()
    compiled = capture(module)
    given = x()
    out = compiled(given)
    assert module.last is out and module.seen == [2]
    assert compiled.last is out
    assert len(backend) == 1


def test_training_flag_and_replaced_parts(capture, backend):
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    compiled = capture(module)
    given = x()
    module.eval()
    assert torch.equal(compiled(given), module(given))
    module.train()
    torch.manual_seed(0)
    ours = compiled(given)
    torch.manual_seed(0)
    assert torch.equal(ours, module(given))
    assert len(backend) == 2
    module[0].weight = nn.Parameter(torch.zeros(4, 4))
    module.eval()
    assert torch.equal(compiled(given), module(given))
    module[0] = nn.Linear(4, 3)
    assert torch.equal(compiled(given), module(given))
    assert len(backend) == 4


def test_requires_grad_of_a_parameter_is_guarded(capture, backend):
    module = nn.Linear(4, 4)
    compiled = capture(module)
    assert compiled(x()).requires_grad
    module.requires_grad_(False)
    assert not compiled(x()).requires_grad
    assert len(backend) == 2


def test_parameters_are_attributes_and_trained_through(capture, backend):
    module = nn.Linear(4, 1)
    twin = copy.deepcopy(module)
    compiled = capture(module)
    ours = torch.optim.SGD(module.parameters(), lr=0.1)
    theirs = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(3):
        given = x()
        for call, optimizer in ((compiled, ours), (twin, theirs)):
            optimizer.zero_grad()
            call(given).pow(2).mean().backward()
            optimizer.step()
    assert torch.equal(module.weight, twin.weight)
    assert len(backend) == 1
    graph = backend.graphs[0]
    assert dict(graph.named_parameters()).keys() == {
        n.target for n in graph.graph.nodes if n.op == "get_attr"
    }
    assert any(p is module.weight for p in graph.parameters())


def test_batch_norm_statistics(agree):
    agree(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), x(2, 3, 5, 5))


def test_hooks(capture, backend):
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    seen = []
    module[0].register_forward_hook(lambda m, args, out: out * 2)
    module[1].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    module.register_forward_hook(lambda m, args, out: seen.append(tuple(out.shape)))
    compiled = capture(module)
    given = x()
    assert torch.equal(compiled(given), module(given))
    assert seen == [(2, 4), (2, 4)]
    handle = module[0].register_forward_hook(lambda m, args, out: out - 1)
    assert torch.equal(compiled(given), module(given))
    handle.remove()
    assert torch.equal(compiled(given), module(given))


def test_forward_replaced_on_the_instance(capture):
    module = nn.Linear(4, 4)
    outer = nn.Sequential(module)
    compiled = capture(outer)
    given = x()
    assert torch.equal(compiled(given), outer(given))
    module.forward = lambda t: t * 3
    assert torch.equal(compiled(given), given * 3)


def test_twin_of_a_module(capture):
    module = Net()
    compiled = capture(module)
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert isinstance(compiled, Net) and compiled.scale is module.scale
    compiled.extra = 5
    assert module.extra == 5
    compiled.eval()
    assert not module.training
    again = copy.deepcopy(compiled)
    assert type(again) is Net
    assert repr(compiled) == repr(module)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_is_kept_by_module_is_that_of_its_compiled_twin(capture, order):
    """As composable libraries keep their state: in a weak table, found from either."""
    module = nn.Linear(2, 2)
    compiled = capture(module)
    kept, asked = ([module, compiled][place] for place in order)
    table = weakref.WeakKeyDictionary({kept: "state"})
    assert table[asked] == "state" and asked in {kept} and asked == kept
    assert len(list(nn.ModuleList([kept, asked]).children())) == 1
    other = capture(nn.Linear(2, 2))
    assert other not in table and other != kept and nn.Linear(2, 2) != compiled
    assert capture(module) == compiled and compiled != "module"


def test_shared_module_and_parameter(agree):
    lin = nn.Linear(4, 4)
    agree(nn.Sequential(lin, nn.ReLU(), lin), x())


def test_module_given_to_a_function(capture, backend):
    def fn(module, t):
        return module(t) + module[0].bias

    module = nn.Sequential(nn.Linear(4, 4))
    given = x()
    assert torch.equal(capture(fn)(module, given), fn(module, given))
    other = nn.Sequential(nn.Linear(4, 4))
    compiled = capture(fn)
    for one in (module, other, module):
        assert torch.equal(compiled(one, given), fn(one, given))


def test_loss_module_made_inside(capture, backend):
    def fn(t, y):
        return nn.CrossEntropyLoss(label_smoothing=0.1)(t, y) + nn.functional.mse_loss(t, t * 2)

    given, labels = x(), torch.tensor([0, 1])
    assert torch.equal(capture(fn)(given, labels), fn(given, labels))
    assert len(backend) == 1


def test_library_modules(agree):
    torch.manual_seed(0)
    agree(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), x(2, 3, 8), graphs=None)
    agree(nn.MultiheadAttention(8, 2), x(3, 2, 8), x(3, 2, 8), x(3, 2, 8), graphs=None)
    agree(nn.LSTM(4, 5, batch_first=True), x(2, 3, 4), graphs=None)
    agree(nn.GRUCell(4, 5), x(2, 4), graphs=None)
    agree(nn.Embedding(10, 4, padding_idx=0), torch.tensor([[1, 2], [0, 3]]))
    agree(nn.EmbeddingBag(10, 4), torch.tensor([[1, 2], [0, 3]]), graphs=None)
    agree(nn.ConvTranspose2d(3, 4, 3, stride=2), x(1, 3, 5, 5))
    agree(nn.Upsample(scale_factor=2, mode="bilinear"), x(1, 3, 5, 5))
    agree(nn.AdaptiveAvgPool2d(2), x(1, 3, 5, 5))
    agree(nn.GroupNorm(2, 4), x(2, 4, 5))
    agree(nn.PReLU(), x())


def test_spectral_norm_and_parametrize(agree):
    module = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    agree(module, x(), graphs=None)


def test_custom_call(agree):
    class Called(nn.Module):
        def __call__(self, t):
            return super().__call__(t) + 1

        def forward(self, t):
            return t * 2

    agree(Called(), x(), graphs=None)


def test_module_without_super_attribute(agree):
    class Uses(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        @property
        def weight(self):
            return self.lin.weight

        def forward(self, t):
            try:
                self.nothing_here
            except AttributeError:
                t = t + 1
            if hasattr(self, "lin") and getattr(self, "other", None) is None:
                t = t @ self.weight
            return t, next(self.parameters()).dtype, self.lin.weight.shape

    agree(Uses(), x())
