# ruff: noqa: B018, UP042
# (the programs under test are written as users write them)
"""Objects: attributes, properties, methods, inheritance, operators, dataclasses, enums."""

import dataclasses
import enum
from collections import OrderedDict

import torch


def x():
    return torch.arange(6.0)


class Base:
    factor = 2

    def __init__(self, value):
        self.value = value
        self._hidden = None

    @property
    def double(self):
        return self.value * 2

    @double.setter
    def double(self, given):
        self.value = given / 2

    @classmethod
    def make(cls, value):
        return cls(value)

    @staticmethod
    def twice(value):
        return value * 2

    def apply(self, t):
        return t * self.factor + self.value

    def __eq__(self, other):
        return isinstance(other, Base) and type(self) is type(other)

    __hash__ = None


class Derived(Base):
    def __init__(self, value, extra=1):
        super().__init__(value)
        self.extra = extra

    def apply(self, t):
        return super().apply(t) + self.extra

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name)
        raise AttributeError(name)

    def __call__(self, t):
        return self.apply(t)

    def __len__(self):
        return 3

    def __getitem__(self, key):
        return key * 2

    def __contains__(self, key):
        return key == 1

    def __add__(self, other):
        return self.value + other

    def __radd__(self, other):
        return other - self.value

    def __iter__(self):
        return iter([1, 2, 3])

    def __enter__(self):
        self.entered = True
        return self

    def __exit__(self, *error):
        self.entered = False
        return False


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def text(self):
        return self.name.lower()


class Kind(str, enum.Enum):
    A = "a"


@dataclasses.dataclass
class Data:
    a: object
    b: int = 3
    c: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.total = self.b + len(self.c)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: int = 1


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Table(OrderedDict):
    def __getitem__(self, key):
        if isinstance(key, int):
            return list(self.values())[key]
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def test_existing_object_is_read_and_written(check):
    def fn(t, obj):
        obj.value = t + obj.value
        obj.double = t
        obj.fresh = 5
        obj._hidden = [t]
        return obj.apply(t), obj.double, obj.factor, Base.twice(t)

    class Box:
        def __init__(self, obj):
            self.obj = obj

        def __eq__(self, other):
            return vars(self.obj).keys() == vars(other.obj).keys()

    check(fn, x(), Base(1.0))


def test_side_effects_reach_the_object(capture):
    def fn(t, obj):
        obj.value = t + 1
        del obj._hidden
        obj.made = Base(t)
        return obj.value * 2

    obj = Base(3)
    capture(fn)(x(), obj)
    assert torch.equal(obj.value, x() + 1) and not hasattr(obj, "_hidden")
    assert type(obj.made) is Base and torch.equal(obj.made.value, x())


def test_new_objects(check):
    def fn(t):
        obj = Derived.make(t)
        with obj as same:
            inside = same.entered
        total = obj(t) + len(obj) + obj[2] + (1 in obj) + obj.dyn_x
        return total, inside, obj.entered, sum(obj), 1 + obj, obj + 1

    check(fn, x())


def test_returned_object_is_whole(capture):
    def fn(t):
        obj = Derived(t, extra=t * 2)
        obj.me = obj
        return obj

    made = capture(fn)(x())
    assert type(made) is Derived and made.me is made
    assert torch.equal(made.extra, x() * 2) and made.factor == 2


def test_missing_attribute(check):
    def fn(t, obj):
        try:
            obj.nothing
        except AttributeError:
            t = t + 1
        return t + getattr(obj, "nope", 5), hasattr(obj, "value"), hasattr(obj, "zzz")

    check(fn, x(), Base(1))


def test_absence_is_guarded(capture, backend):
    def fn(t, obj):
        return t + 1 if hasattr(obj, "flag") else t - 1

    compiled = capture(fn)
    obj = Base(1)
    assert torch.equal(compiled(x(), obj), x() - 1)
    obj.flag = True
    assert torch.equal(compiled(x(), obj), x() + 1)
    del obj.flag
    assert torch.equal(compiled(x(), obj), x() - 1)
    assert len(backend) == 2


def test_attribute_is_guarded(capture, backend):
    def fn(t, obj):
        return t * obj.value

    compiled = capture(fn)
    obj = Base(2)
    assert torch.equal(compiled(x(), obj), x() * 2)
    obj.value = 3
    assert torch.equal(compiled(x(), obj), x() * 3)
    assert len(backend) == 2


def test_replaced_method_is_noticed(capture, monkeypatch):
    def fn(t, obj):
        return obj.apply(t)

    compiled = capture(fn)
    obj = Base(2)
    assert torch.equal(compiled(x(), obj), x() * 2 + 2)
    monkeypatch.setattr(Base, "apply", lambda self, t: t - 1)
    assert torch.equal(compiled(x(), obj), x() - 1)
    obj.apply = lambda t: t - 7
    assert torch.equal(compiled(x(), obj), x() - 7)


def test_class_attribute_is_guarded(capture, monkeypatch):
    def fn(t, obj):
        return t * obj.factor

    compiled = capture(fn)
    obj = Base(2)
    assert torch.equal(compiled(x(), obj), x() * 2)
    monkeypatch.setattr(Base, "factor", 5)
    assert torch.equal(compiled(x(), obj), x() * 5)


def test_dataclasses(check):
    def fn(t, given):
        made = Data(t, c=[1, 2])
        names = [f.name for f in dataclasses.fields(made)]
        return made, names, given.a + 1, Frozen(t).b, dataclasses.is_dataclass(given)

    def plain(t, given):
        made, *rest = fn(t, given)
        return made.a + 1, made.b, made.c, made.total, *rest

    check(plain, x(), Frozen(3))


def test_enums(check):
    def fn(t, color, kind):
        if color is Color.RED:
            t = t + color.value
        if kind == "a" and kind == Kind.A:
            t = t * 2
        table = {Color.RED: 1, Color.BLUE: 2}
        return t + table[color], color.text, Color(2).name, color == Color.BLUE

    check(fn, x(), Color.RED, Kind.A)
    check(fn, x(), Color.BLUE, Kind.A)


def test_slots(check):
    def fn(t, obj):
        obj.b = t + obj.a
        made = Slotted(t)
        return obj.b * 2, made.a, hasattr(made, "b")

    def run(t):
        return fn(t, Slotted(2))

    check(run, x())


def test_slots_of_an_existing_object(capture):
    def fn(t, obj):
        obj.b = t + obj.a
        return obj.b * 2

    obj = Slotted(2)
    assert torch.equal(capture(fn)(x(), obj), (x() + 2) * 2)
    assert torch.equal(obj.b, x() + 2)


def test_dict_subclass(check):
    def fn(t):
        table = Table()
        table["a"] = t
        table.b = t + 1
        return table, table[0] + table["b"], table.a * 2, list(table.keys()), len(table)

    check(fn, x())


def test_isinstance_and_type(check):
    def fn(t, obj):
        flags = [
            isinstance(t, torch.Tensor),
            isinstance(obj, (int, Base)),
            isinstance(obj, int | str),
            type(obj) is Derived,
            issubclass(Derived, Base),
            obj.__class__.__name__,
            callable(obj),
            isinstance([], list),
        ]
        return t + sum(isinstance(f, bool) for f in flags), flags

    check(fn, x(), Derived(1))


def test_operators_of_objects(check):
    class Vector:
        def __init__(self, t):
            self.t = t

        def __mul__(self, other):
            return Vector(self.t * other)

        def __rmul__(self, other):
            return Vector(self.t * other * 10)

        def __matmul__(self, other):
            return (self.t * other.t).sum()

        def __neg__(self):
            return Vector(-self.t)

        def __lt__(self, other):
            return True

        def __bool__(self):
            return False

        def __iadd__(self, other):
            self.t = self.t + other
            return self

        def __repr__(self):
            return "vector"

    def fn(t):
        v = Vector(t)
        w = 2 * (v * 3)
        v += 1
        return (-w).t, v @ w, v < w, not v, f"{v}", v.t

    check(fn, x())


def test_instance_dict(check):
    def fn(t, obj):
        vars(obj)["more"] = 3
        names = sorted(obj.__dict__)
        obj.__dict__.update(z=t)
        return t + len(names), names, obj.z * 2, "value" in obj.__dict__

    check(fn, x(), Base(1))


class Told(type):
    """A metaclass of the program's own."""


def test_class_of_a_metaclass_made_in_the_function(check):
    def fn(t):
        t = t + 1

        class Local(metaclass=Told):
            k = 2

        return t * Local.k

    check(fn, x())


def test_bound_methods_travel(check):
    def fn(t, obj):
        f = obj.apply
        return f(t), list(map(obj.apply, [t, t + 1])), f.__name__

    check(fn, x(), Base(2))


def test_copies(check):
    import copy

    def fn(t, obj, items):
        shallow, whole = copy.copy(obj), copy.deepcopy(items)
        deep = copy.deepcopy(obj)
        shallow.value = 7
        deep._hidden = 8
        items[0].append(1)
        return t + obj.value + shallow.value, deep._hidden, whole, type(deep) is type(obj)

    check(fn, x(), Base(2), [[3], {"a": [4]}])
