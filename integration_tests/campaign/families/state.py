"""Functions that read and write Python state, which changes between calls.

In: chance. Out: a program of places (attributes, entries, globals, cells, defaults), ways to read
them, ways to write them inside, ways to change them outside. Invariant: what a place holds is of a
kind, and each way to read or change it is a row of a table by kind.
"""

from __future__ import annotations

import random
from textwrap import indent

from integration_tests.campaign.program import Call, Program, tried

SETUP = {
    "glob": "G = 2\nFLAG = True\nNAME = 'a'\nTABLE = {'a': 1.0, 'b': 2.0}\nITEMS = [1.0, 2.0, 3.0]",
    "cls": """class Base:
    shared = 1.5
    def apply(self, t):
        return t + self.gain
class Thing(Base):
    kind = "thing"
    count = 0
    def __init__(self, gain=2.0):
        self.gain = gain
        self.items = [1, 2]
        self.table = {"a": 1.0, 1: 2.0}
        self.on = True
        self.inner = None
        self.t = make((3,), torch.float32, 3, "whole")
    @property
    def double(self):
        return self.gain * 2
    @classmethod
    def made(cls, t):
        return t * cls.shared
    @staticmethod
    def fixed(t):
        return t - 1
    def __len__(self):
        return len(self.items)
    def __contains__(self, item):
        return item in self.table
    def __getitem__(self, key):
        return self.table[key]
    def __eq__(self, other):
        return isinstance(other, Thing) and self.gain == other.gain
    __hash__ = object.__hash__
SUBS = []
thing = Thing()
other = Thing(3.0)
thing.inner = other""",
    "slots": """class Slotted:
    __slots__ = ("a", "b")
    def __init__(self):
        self.a = 1.0
        self.b = [1]
slotted = Slotted()""",
    "data": """import dataclasses
@dataclasses.dataclass
class Config:
    gain: float = 1.5
    steps: int = 2
    mode: str = "add"
    tags: list = dataclasses.field(default_factory=list)
config = Config()""",
    "named": """import collections, types, enum, functools
Point = collections.namedtuple("Point", "x y")
point = Point(1.0, 2)
space = types.SimpleNamespace(on=True, value=3.0)
counts = collections.Counter("aab")
filled_dict = collections.defaultdict(list, a=[1])
ordered = collections.OrderedDict(one=1.0, two=2.0)
queue = collections.deque([1.0, 2.0], maxlen=4)
class Color(enum.Enum):
    RED = 1
    BLUE = 2
color = Color.RED
view = types.MappingProxyType(ordered)
chain = collections.ChainMap({}, ordered)""",
    "fun": """def helper(t, power=2, *, offset=0.5):
    return t * power + offset
def maker(n, items):
    def inner(t):
        return t * n + len(items)
    def change(m):
        nonlocal n
        n = m
    return inner, change
closed, change_closed = maker(2.0, [1, 2])
import functools
partial = functools.partial(helper, power=3)
HANDLERS = {"a": helper, "b": lambda t: t + 1}""",
    "mod": """class Model(torch.nn.Module):
    mode = "plain"
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(make((3,), torch.float32, 4, "whole"))
        self.register_buffer("shift", make((3,), torch.float32, 5, "whole"))
        self.scale = 1.5
        self.flags = {"relu": True}
        self.calls = 0
        self.layers = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.ReLU()])
        self.extra = None
    def forward(self, t):
        t = t * self.weight + self.shift
        if self.training:
            t = t * self.scale
        if self.flags["relu"]:
            t = t.relu()
        for layer in self.layers:
            t = layer(t)
        self.calls += 1
        return t
model = Model()""",
    "weak": """import weakref
class Held:
    value = 2.0
held = Held()
weak = weakref.ref(held)""",
    "meta": """class Meta(type):
    registry = []
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.seen = len(cls.registry)
        return made
class Made(metaclass=Meta):
    limit = 3
    def __getattr__(self, name):
        if name.startswith("auto"):
            return 4.0
        raise AttributeError(name)
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)
        type(self).limit = type(self).limit
made = Made()
class Desc:
    def __get__(self, owner, cls):
        return 5.0 if owner is None else owner.__dict__.get("raw", 1.0)
    def __set__(self, owner, value):
        owner.__dict__["raw"] = value
class Using:
    d = Desc()
using = Using()""",
}

#: part of the setup: ways to read it, as statements on `t`
READS = {
    "glob": (
        "t = t * G", "t = t + 1 if FLAG else t - 1", "t = t + len(NAME)", "t = t * TABLE['a']",
        "t = t + sum(TABLE.values())", "t = t + TABLE.get('c', 7.0)", "t = t + ('b' in TABLE)",
        "for k, v in TABLE.items():\n    t = t * v + len(k)", "t = t + sum(ITEMS)",
        "t = t * ITEMS[-1]", "t = t + len(ITEMS)", "t = t + (2.0 in ITEMS)",
        "t = t + (NAME == 'a')", "t = t + globals()['G']",
        "for i, v in enumerate(ITEMS[1:]):\n    t = t + i * v",
        "t = t + (ITEMS == [1.0, 2.0, 3.0])", "t = t + isinstance(G, int)", "t = t * float(G)",
        "t = t + (type(G) is int)", "t = t + next(iter(TABLE.values()))",
        "t = t + int('q' in globals())", "first, *rest = ITEMS\nt = t + first + len(rest)",
    ),
    "cls": (
        "t = t * thing.gain", "t = thing.apply(t)", "t = t + thing.shared",
        "t = t + Thing.shared", "t = t * thing.double", "t = Thing.made(t)",
        "t = thing.fixed(t)", "t = t + len(thing)", "t = t + ('a' in thing)",
        "t = t * thing['a']", "t = t + thing.inner.gain if thing.inner is not None else t",
        "t = t + (thing == other)", "t = t + len(vars(thing))", "t = t * vars(thing)['gain']",
        "t = t + Thing.__dict__.get('count', 5)", "t = t + hasattr(thing, 'later')",
        "t = t + getattr(thing, 'later', 3)", "t = t + len(type(thing).__mro__)",
        "t = t + isinstance(thing, Base)", "t = t + thing.t",
        "t = t + ('shared' in Base.__dict__)", "t = t + len(Base.__subclasses__())",
        "t = t + thing.items[0]", "t = t + sum(thing.items)",
        "t = t + len(thing.__class__.__name__)", "t = t * thing.table[1]",
        "t = t + (thing.kind == 'thing')", "t = t + (thing.inner is other)",
        "t = t + thing.__dict__['gain']", "t = t + len(dir(thing)) * 0 + callable(thing.apply)",
        "t = t * (2 if thing else 3)", "t = t + ('gain' in thing.__dict__)",
        "t = t + issubclass(type(thing), Base)",
    ),
    "slots": (
        "t = t * slotted.a", "t = t + len(slotted.b)", "t = t + hasattr(slotted, 'a')",
    ),
    "data": (
        "t = t * config.gain", "for _ in range(config.steps):\n    t = t + 1",
        "t = t - 1 if config.mode == 'sub' else t + 1", "t = t + len(config.tags)",
        "t = t + len(dataclasses.fields(config))", "t = t + (config == Config())",
        "t = t * dataclasses.asdict(config)['gain']",
        "t = t + dataclasses.replace(config, steps=4).steps",
    ),
    "named": (
        "t = t * point.x + point[1]", "t = t + space.value if space.on else t",
        "t = t + counts['a']", "t = t + len(filled_dict['a'])", "t = t + sum(ordered.values())",
        "t = t + queue[0]", "t = t + len(queue)", "t = t + (color is Color.RED)",
        "t = t + color.value", "t = t + sum(view.values())", "t = t + len(view)",
        "t = t + chain['one']", "t = t + len(point)", "t = t + list(ordered).index('two')",
        "t = t + counts.most_common(1)[0][1]", "t = t + len(point._fields)",
        "t = t + len(color.name)",
    ),
    "fun": (
        "t = helper(t)", "t = helper(t, 3)", "t = closed(t)", "t = partial(t)",
        "t = HANDLERS['a'](t)", "for h in HANDLERS.values():\n    t = h(t)",
        "t = t + helper.__defaults__[0]", "t = t + len(helper.__name__)",
        "t = t + partial.keywords['power']", "t = t + helper.__kwdefaults__['offset']",
        "t = t + closed.__closure__[1].cell_contents", "t = t + getattr(helper, 'tag', 2)",
    ),
    "mod": (
        "t = model(t)", "t = t * model.scale", "t = t + model.shift", "t = t + model.training",
        "t = t + len(model.layers)", "t = t + len(list(model.parameters()))",
        "t = t + sum(p.sum() for p in model.parameters())", "t = t + len(model._buffers)",
        "t = t + hasattr(model, 'extra')", "t = t + (model.extra is None)",
        "t = t + len(model.mode)", "t = t + sum(len(n) for n, _ in model.named_parameters())",
        "t = t + len(model.state_dict())", "t = t + model.weight.requires_grad",
        "t = t + isinstance(model.layers[0], torch.nn.Identity)",
    ),
    "weak": (
        "t = t * weak().value if weak() is not None else t - 1", "t = t + (weak() is None)",
    ),
    "meta": (
        "t = t + made.limit", "t = t + made.auto_x", "t = t + getattr(made, 'none', 1)",
        "t = t + using.d", "t = t + Using.d", "t = t + made.seen", "t = t + len(Meta.registry)",
        "t = t + Made().seen",
    ),
}  # fmt: skip

#: writes that the function itself makes
WRITES = {
    "glob": (
        "global G\nG = G + 1", "TABLE['n'] = len(TABLE)", "ITEMS.append(1.0)",
        "LOG.append('f')", "ITEMS[0] += 1", "TABLE.pop('b', None)", "TABLE.update(a=4.0)",
        "ITEMS.sort(reverse=True)", "LOG.append(t.sum())", "print('in f', G)",
        "TABLE['t'] = t\nTABLE.pop('t')", "del ITEMS[-1:]", "ITEMS.insert(0, 9.0)",
        "TABLE.setdefault('z', 3.0)", "ITEMS.reverse()", "ITEMS += [5.0]",
    ),
    "cls": (
        "thing.gain += 1", "Thing.count += 1", "thing.items.append(3)",
        "thing.table['k'] = 2.0", "thing.later = 1", "thing.inner = None", "thing.t = t",
        "thing.t.add_(1)", "del thing.on", "setattr(thing, 'later', 5)",
        "thing.inner, other.inner = other, thing", "thing.__dict__['gain'] = 4.0",
        "fresh = Thing(5.0)\nt = fresh.apply(t)", "thing.items = [*thing.items, 7]",
        "thing.on = not thing.on",
    ),
    "slots": (
        "slotted.a = slotted.a + 1", "slotted.b.append(2)", "del slotted.a",
    ),
    "data": (
        "config.steps += 1", "config.tags.append('x')", "config.mode = 'sub'",
        "cfg = Config(gain=2.5)\nt = t * cfg.gain",
    ),
    "named": (
        "space.value += 1", "counts['a'] += 1", "filled_dict['new'].append(1)",
        "ordered.move_to_end('one')", "queue.append(5.0)", "queue.rotate(1)",
        "ordered['three'] = 3.0", "counts.update('b')", "t = t + point._replace(x=4.0).x",
    ),
    "fun": (
        "helper.tag = 4", "change_closed(5.0)", "HANDLERS['c'] = helper", "HANDLERS.clear()",
    ),
    "mod": (
        "model.calls += 1", "model.shift.add_(1)", "model.scale = 2.5",
        "model.flags['relu'] = False", "model.extra = 1", "model.shift = model.shift + 1",
        "model.shift.copy_(t.detach())",
    ),
    "weak": (
        "held.value = 6.0",
    ),
    "meta": (
        "made.limit = 9", "using.d = 2.0", "Made.limit += 1", "Meta.registry.append(1)",
    ),
}  # fmt: skip

#: changes from outside
CHANGES = {
    "glob": (
        "G = 3", "G = 2.0", "G = True", "FLAG = False", "FLAG = None", "NAME = 'bcd'",
        "TABLE['a'] = 5.0", "TABLE = {'a': 9.0}", "TABLE['c'] = 1.0", "del TABLE['b']",
        "ITEMS[0] = 7.0", "ITEMS.append(4.0)", "ITEMS = (1.0, 2.0)", "ITEMS = [1, 2]",
        "G = torch.ones(3)", "TABLE = dict(reversed(TABLE.items()))", "ITEMS.clear()", "q = 1",
        "G = -0.0", "TABLE.clear()",
    ),
    "cls": (
        "thing.gain = 5.0", "Thing.shared = 3.0", "Base.shared = 4.0", "thing.shared = 6.0",
        "thing = Thing(7.0)", "thing.inner = None", "thing.items.append(3)",
        "thing.table['a'] = 9.0", "Thing.apply = lambda self, t: t * 10",
        "thing.apply = lambda t: t - 5", "Thing.double = property(lambda self: 11.0)",
        "thing.t = thing.t + 1", "thing.t = make((1,), torch.float32, 8, 'whole')",
        "Thing.__len__ = lambda self: 9", "thing.later = 2", "del thing.gain",
        "SUBS.append(type('Sub', (Base,), {}))",
        "SUBS.append(type('Late', (Base,), {}))\nThing.__bases__ = (SUBS[-1],)",
        "Thing.made = classmethod(lambda cls, t: t + 100)",
        "SUBS.append(type('Swapped', (Thing,), {'kind': 'swapped'}))\nthing.__class__ = SUBS[-1]",
        "thing.gain = other.gain", "thing.table = {1: 3.0, 'a': 2.0}", "Thing.count = 12",
        "del Thing.count", "Thing.__eq__ = lambda self, o: False", "thing.gain = 2",
        "thing.items = ()", "thing.__dict__.update(gain=8.0)", "Thing.__name__ = 'Other'",
        "thing.inner = thing", "Thing.gain = 3.0", "Thing.__bool__ = lambda self: False",
    ),
    "slots": (
        "slotted.a = 4.0", "slotted.b = []", "slotted = Slotted()", "del slotted.a",
    ),
    "data": (
        "config.gain = 2.5", "config.steps = 0", "config.steps = 4", "config.mode = 'sub'",
        "config.tags.append(1)", "config = Config(3.0)", "config.steps = True",
    ),
    "named": (
        "point = Point(5.0, 1)", "space.on = False", "space.value = 1", "counts['a'] = 9",
        "filled_dict['a'].append(2)", "ordered['one'] = 8.0", "ordered.move_to_end('one')",
        "queue.append(9.0)", "queue.popleft()", "color = Color.BLUE", "ordered['d'] = 5.0",
        "counts.clear()", "del ordered['one']",
        "space = types.SimpleNamespace(on=True, value=9.0)", "del space.value",
    ),
    "fun": (
        "helper.__defaults__ = (5,)", "helper.__kwdefaults__ = {'offset': 2.0}",
        "helper.__code__ = (lambda t, power=1, *, offset=0: t - power).__code__",
        "change_closed(7.0)",
        "cell = closed.__closure__[1]\n"
        "cell.cell_contents = 4.0 if isinstance(cell.cell_contents, float) else [1]",
        "HANDLERS['a'] = lambda t: t * 50", "HANDLERS['z'] = helper",
        "partial = functools.partial(helper, power=9)", "helper = lambda t, p=1: t * p + 3",
        "helper.tag = 9", "partial.keywords['power'] = 11", "del HANDLERS['a']",
    ),
    "mod": (
        "model.scale = 3.0", "model.eval()", "model.train()", "model.flags['relu'] = False",
        "model.shift.add_(2)", "model.shift = make((3,), torch.float32, 9, 'whole')",
        "model.weight = torch.nn.Parameter(make((3,), torch.float32, 8, 'whole'))",
        "model.weight.data = make((3,), torch.float32, 7, 'whole')",
        "model.weight.requires_grad_(False)", "model.layers.append(torch.nn.Tanh())",
        "model.layers[0] = torch.nn.Sigmoid()", "model.extra = 3",
        "model.register_forward_hook(lambda m, a, o: o * 2)",
        "model.register_forward_pre_hook(lambda m, a: (a[0] + 1,))", "model.double()",
        "model.register_buffer('more', torch.ones(1))", "del model.extra",
        "model.mode = 'other'", "Model.mode = 'longest'",
        "model._parameters['weight'] = torch.nn.Parameter(torch.ones(1))",
        "model.forward = lambda t: t * 3", "model = Model()", "model.shift.resize_(1)",
        "Model.forward = lambda self, t: t - 2",
        "with torch.no_grad():\n    model.weight.mul_(2)",
    ),
    "weak": (
        "del held", "held.value = 4.0", "Held.value = 9.0", "held = Held()",
    ),
    "meta": (
        "Made.limit = 8", "made.limit = 1", "using.d = 6.0", "Meta.registry.append(1)",
        "made.auto_x = 7.0", "Desc.__get__ = lambda s, o, c: 8.0", "made = Made()",
    ),
}  # fmt: skip

SHAPES = (
    "leaf(make((3,), torch.float32, 1, 'whole'))", "make((3,), torch.float32, 2, 'whole')",
    "make((2, 3), torch.float32, 3, 'whole')", "make((3,), torch.float64, 4, 'whole')",
    "make((1,), torch.float32, 2, 'whole')", "make((4, 3), torch.float32, 1, 'normal')",
)  # fmt: skip


def draw(chance: random.Random) -> Program:
    """A function of two to eight reads and writes; two to six calls with changes between."""
    parts = chance.sample(sorted(SETUP), chance.choice((1, 1, 2, 2, 3)))
    body: list[str] = []
    declared = False
    for _ in range(chance.randrange(2, 9)):
        part = chance.choice(parts)
        table = WRITES if chance.random() < 0.3 else READS
        text = chance.choice(table[part])
        if text.startswith("global "):
            head, _, text = text.partition("\n")
            if not declared:
                body.insert(0, head)
            declared = True
        body.append(
            text if chance.random() > 0.1 else "if t.shape[0] > 2:\n" + indent(text, "    ")
        )
    calls = []
    argument = chance.choice(SHAPES)
    for number in range(chance.randrange(2, 7)):
        before = []
        if number:
            for _ in range(chance.choice((0, 1, 1, 1, 2))):
                text = chance.choice(CHANGES[chance.choice(parts)])
                before.append(tried(text))
        if chance.random() < 0.2:
            argument = chance.choice(SHAPES)
        calls.append(Call({"t": argument}, tuple(before)))
    setup = tuple(SETUP[part] for part in parts)
    return Program("state", 0, tuple(body), ("t",), tuple(calls), setup)
