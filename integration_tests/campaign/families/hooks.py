"""Modules that are changed between calls and in them.

Hooks of every kind, parametrizations, tables of modules and of parameters, buffers, modes, copies
and loaded states.

In: chance. Out: a module of a few parts, ways to use them, two to four calls with changes between.
Invariant: values are whole or by `filled`, so that no change is lost in rounding.
"""

from __future__ import annotations

import random
from textwrap import indent

from integration_tests.campaign.program import Call, Program, tried

SETUP = """import copy, collections
import torch.nn.utils.parametrize as parametrize
from torch.nn.utils import parametrizations, weight_norm, spectral_norm
class Doubled(torch.nn.Module):
    def forward(self, w): return w * 2
    def right_inverse(self, w): return w / 2
class Masked(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor([1.0, 0.0, 1.0], device=DEVICE))
    def forward(self, w): return w * self.mask
class Counted(torch.nn.Module):
    calls = 0
    def __init__(self):
        super().__init__()
        self.seen = 0
        self.register_buffer("total", torch.zeros(3, device=DEVICE))
    def forward(self, t, *more, scale=1.0):
        self.seen += 1
        Counted.calls += 1
        self.total += t.detach().reshape(-1, 3).sum(0)
        return t * scale + self.seen
class Own(torch.nn.Linear):
    def __call__(self, t): return super().__call__(t) - 1
def noted(name, answer=None):
    def hook(module, *given, **named):
        LOG.append((name, type(module).__name__, len(given), sorted(named)))
        return None if answer is None else answer(*given)
    return hook
HANDLES = []
def hooked(handle):
    HANDLES.append(handle)"""
MODEL = """class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        self.own = Own(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.drop = torch.nn.Dropout(0.0)
        self.counted = Counted()
        self.list = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.ReLU()])
        self.table = torch.nn.ModuleDict({"a": torch.nn.Tanh(), "b": torch.nn.Identity()})
        self.seq = torch.nn.Sequential(collections.OrderedDict(one=torch.nn.Linear(3, 3),
                                                               two=torch.nn.ReLU()))
        self.params = torch.nn.ParameterList([torch.ones(3), torch.zeros(3)])
        self.pdict = torch.nn.ParameterDict({"p": torch.ones(3)})
        self.register_buffer("shift", torch.ones(3))
        self.register_buffer("loose", torch.zeros(3), persistent=False)
        self.register_buffer("nothing", None)
        self.register_parameter("unset", None)
        self.free = torch.nn.Parameter(torch.ones(3))
        self.gain = 2
    def forward(self, x, flag=False):
        t = x
{body}
        return t
model = filled(Model(), {seed})"""
USES = (
    "t = self.lin(t)", "t = self.own(t)", "t = self.norm(t)", "t = self.drop(t)",
    "t = self.counted(t)", "t = self.counted(t, scale=2.0)", "for m in self.list:\n    t = m(t)",
    "t = self.table['a'](t)", "for k, m in self.table.items():\n    t = m(t) + len(k)",
    "t = self.seq(t)", "t = self.seq.one(t)", "t = self.seq[-1](t)", "t = self.seq[:1](t)",
    "t = t * self.params[0]", "for p in self.params:\n    t = t + p", "t = t + self.pdict['p']",
    "t = t + self.shift", "t = t - self.loose", "t = t * self.gain", "t = t * self.free",
    "if self.training:\n    t = t * 2", "if self.nothing is not None:\n    t = t + self.nothing",
    "if self.unset is not None:\n    t = t * self.unset", "t = t + len(self.list)",
    "self.shift = self.shift + 1", "self.shift.add_(1)", "self.gain = self.gain + 1",
    "t = t + sum(p.numel() for p in self.parameters())", "t = t + len(list(self.buffers()))",
    "t = t + len(self.state_dict())", "if hasattr(self, 'late'):\n    t = t + self.late",
    "t = torch.nn.functional.linear(t, self.lin.weight)", "t = t + self.norm.num_batches_tracked",
    "with torch.no_grad():\n    t = t + self.lin(t)", "LOG.append(self.training)",
    "for n, m in self.named_children():\n    t = t + len(n)",
    "t = t + [*self.seq.children()][0].bias", "t = t + isinstance(self.list[0], torch.nn.Linear)",
    "self.lin.weight.requires_grad_(False)", "self.last = t.detach()",
    "t = torch.func.functional_call(self.lin, {'bias': self.shift}, (t,))",
    "t = getattr(self, 'lin')(input=t)", "t = self.lin.forward(t)",
    "t = type(self.lin).forward(self.lin, t)",
)  # fmt: skip
PARTS = ("lin", "own", "seq", "counted", "list[0]", "norm", "seq[0]", "drop", "table['a']")
HOOKS = (
    "hooked(model.{p}.register_forward_hook(noted('f')))",
    "hooked(model.{p}.register_forward_hook(noted('f', lambda a, o: o + 1)))",
    "hooked(model.{p}.register_forward_hook(noted('fk', lambda a, k, o: o * 2), with_kwargs=True))",
    "hooked(model.{p}.register_forward_hook(noted('first'), prepend=True))",
    "hooked(model.{p}.register_forward_hook(noted('always'), always_call=True))",
    "hooked(model.{p}.register_forward_pre_hook(noted('pre')))",
    "hooked(model.{p}.register_forward_pre_hook(noted('pre', lambda a: (a[0] + 1,))))",
    "hooked(model.{p}.register_forward_pre_hook(noted('pre', lambda a: a[0] * 2)))",
    "hooked(model.{p}.register_forward_pre_hook(lambda m, a, k: (a, k), with_kwargs=True))",
    "hooked(model.{p}.register_full_backward_hook(noted('back')))",
    "hooked(model.{p}.register_full_backward_hook(lambda m, i, o: tuple(g * 2 if g is not None "
    "else g for g in i)))",
    "hooked(model.{p}.register_full_backward_pre_hook(noted('pre back')))",
    "hooked(model.{p}.register_state_dict_post_hook(lambda *a: LOG.append('sd')))",
    "hooked(model.lin.weight.register_hook(lambda g: g * 3))",
    "hooked(torch.nn.modules.module.register_module_forward_hook(noted('any')))",
    "hooked(model.register_forward_hook(noted('whole')))",
)  # fmt: skip
CHANGES = (
    "HANDLES.pop().remove()", "model.eval()", "model.train()", "model.{p}.eval()",
    "model.list.append(torch.nn.Tanh())", "model.list[0] = torch.nn.Identity()",
    "del model.list[0]",
    "model.list.insert(0, torch.nn.ReLU())", "model.list.extend([torch.nn.ReLU()])",
    "model.table['c'] = torch.nn.ReLU()", "del model.table['a']",
    "model.table.update(a=torch.nn.ReLU())",
    "model.table.pop('b')", "model.seq.append(torch.nn.Tanh())",
    "model.seq.add_module('x', torch.nn.ReLU())",
    "model.seq[0] = torch.nn.Identity()", "model.params.append(torch.ones(3))",
    "model.params[0] = torch.nn.Parameter(torch.full((3,), 5.0))",
    "model.pdict['p'] = torch.full((3,), 4.0)",
    "model.pdict['q'] = torch.ones(3)", "model.shift = torch.full((3,), 7.0)", "model.loose = None",
    "model.nothing = torch.ones(3)", "model.unset = torch.nn.Parameter(torch.full((3,), 2.0))",
    "model.register_buffer('shift', torch.zeros(3))", "model.late = 3", "model.gain = 5",
    "model.free = torch.nn.Parameter(torch.full((3,), 6.0))",
    "del model.free\nmodel.free = torch.ones(3)",
    "model.free.data = torch.full((3,), 8.0)", "model.free.requires_grad_(False)",
    "model.double().float()",
    "model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()})",
    "model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}, assign=True)",
    "model = copy.deepcopy(model)", "model.zero_grad()", "model.requires_grad_(False)",
    "parametrize.register_parametrization(model.lin, 'weight', Doubled())",
    "parametrize.register_parametrization(model.lin, 'bias', Masked())",
    "parametrize.remove_parametrizations(model.lin, 'weight')", "weight_norm(model.lin)",
    "torch.nn.utils.remove_weight_norm(model.lin)", "parametrizations.weight_norm(model.seq[0])",
    "spectral_norm(model.lin)", "parametrizations.orthogonal(model.lin)",
    "model.lin.forward = lambda t: t * 3", "del model.lin.forward",
    "Own.__call__ = lambda self, t: t + 9", "model.lin = torch.nn.Linear(3, 3, bias=False)",
    "model.lin = model.own", "model.own = model.lin", "model.norm.reset_running_stats()",
    "model.norm.momentum = None", "model.norm.track_running_stats = False", "model.drop.p = 1.0",
    "model.counted.seen = 0", "Counted.calls = 5", "model.apply(lambda m: m.train(not m.training))",
    "with torch.no_grad():\n    model.lin.weight.mul_(2)", "model.norm.affine = False",
    "for p in model.parameters():\n    p.grad = None", "model.lin.in_features = 7",
    "torch.nn.init.ones_(model.lin.weight)", "model.lin.bias = None", "model.half().float()",
)  # fmt: skip
CALLS = (
    "t = model(x)", "t = model(x, flag=True)", "t = model.forward(x)", "t = model(x) + model(x)",
    "t = model.seq(model.lin(x))", "t = model.lin(x) * model.gain",
)  # fmt: skip


def draw(chance: random.Random) -> Program:
    uses = "\n".join(chance.choice(USES) for _ in range(chance.randrange(1, 6)))
    model = MODEL.replace("{body}", indent(uses, " " * 8)).replace(
        "{seed}", str(chance.randrange(9))
    )

    def changed(table: tuple[str, ...]) -> str:
        return tried(chance.choice(table).replace("{p}", chance.choice(PARTS)))

    setup = [SETUP, model, *(changed(HOOKS) for _ in range(chance.choice((0, 0, 1, 1, 2))))]
    setup += [changed(CHANGES) for _ in range(chance.choice((0, 0, 1)))]
    body = [chance.choice(CALLS)]
    if chance.random() < 0.25:
        body.insert(0, changed((*CHANGES, *HOOKS)).replace("model = ", "other = "))
    after = ()
    if chance.random() < 0.5:
        after = ("if out[0].requires_grad:\n    out[0].sum().backward()",)
    calls = []
    for number in range(chance.choice((2, 3, 3, 4))):
        before = []
        for _ in range(chance.choice((0, 1, 1, 2)) if number else 0):
            before.append(changed(CHANGES if chance.random() < 0.65 else HOOKS))
        shape = chance.choice(("(2, 3)", "(2, 3)", "(4, 3)"))
        x = f"make({shape}, torch.float32, {chance.randrange(9)}, 'whole')"
        calls.append(
            Call({"x": f"leaf({x})" if chance.random() < 0.3 else x}, tuple(before), after)
        )
    return Program("hooks", 0, tuple(body), ("t",), tuple(calls), tuple(setup))
