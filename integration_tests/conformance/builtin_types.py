"""Built-in functions, exceptions, and the methods of the types that Python and its library have.

In: `builtins`, and expressions that make a value of each type. Out: a construct a name.
Invariant: a method's object is made in the function, and lived before the call: both are used.
"""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Iterator
from typing import Any

from integration_tests.conformance import drawing
from integration_tests.conformance.construct import Construct, caught, together

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "__build_class__": ("class C: k = 1\nR.append(C.k)",),
    "__import__": ("__import__('math').pi", "__import__('os.path').path.sep"),
    "__debug__": ("__debug__",),
    "Ellipsis": ("Ellipsis is ...", "t[Ellipsis]"),
    "NotImplemented": ("NotImplemented", "(1).__add__('a') is NotImplemented"),
    "abs": ("abs(-n)", "abs(t)", "abs(-1.5)", "abs(3 + 4j)", caught("abs('a')")),
    "aiter": ("async def g():\n    yield n\nk = aiter(g())\nR.append(type(k).__name__)",),
    "all": ("all(xs)", "all(k > 0 for k in xs)", "all([])", caught("all(n)")),
    "anext": ("async def g():\n    yield n\nasync def h(): return await anext(g())\ntry:\n"
              "    h().send(None)\nexcept StopIteration as e:\n    R.append(e.value)",),
    "any": ("any(xs)", "any(k > 2 for k in xs)", "any(())", "any(isinstance(k, str) for k in xs)"),
    "callable": ("callable(len)", "callable(n)", "callable(Vec(t))", "callable(lambda: 1)"),
    "classmethod": ("class C:\n    @classmethod\n    def m(cls): return "
                    "cls.__name__\nR.append(C.m())",),
    "compile": ("eval(compile('n + 1', '<s>', 'eval'))", caught("compile('n +', '<s>', 'eval')")),
    "delattr": ("p = Pair(t)\ndelattr(p, 'b')\nR.append(p.b)", caught("delattr(n, 'k')")),
    "dir": ("'b' in dir(Pair(t))", "'t' in dir()", "len(dir(math)) > 9"),
    "enumerate": ("list(enumerate(xs))", "list(enumerate('ab', n))", "for k, v in enumerate(t): "
                  "R.append(v * k)", "dict(enumerate(xs, start=1))", caught("enumerate(n)")),
    "eval": ("eval('n + 1')", "eval('k * 2', {'k': n})", caught("eval('1 +')"), "eval('t + 1')"),
    "exec": ("space = {}\nexec('k = 2', space)\nR.append(space['k'])", "exec('pass')"),
    "filter": ("list(filter(None, [0, n]))", "list(filter(lambda k: k > 1, xs))",
               "next(filter(str.isdigit, 'a1'))"),
    "getattr": ("getattr(t, 'shape')", "getattr(Pair(t), 'none', n)", "getattr(torch, 'relu')(t)",
                caught("getattr(n, 'none')"), caught("getattr(n, 1)")),
    "globals": ("globals()['TOTAL']", "'Pair' in globals()", "globals()['FRESH'] = "
        "n\nR.append(FRESH)"),
    "hasattr": ("hasattr(t, 'shape')", "hasattr(Pair(t), 'none')", "hasattr(n, 'real')",
                "hasattr(math, 'tau')"),
    "hash": ("hash(n)", "hash((1, n)) == hash((1, n))", caught("hash([])"),
        "hash('a') == hash('a')",
             "hash(t) == hash(t)", "hash(1.5)", "hash(Own) == hash(Own)"),
    "id": ("id(t) == id(t)", "id(xs) == id(n)", "{id(t): n}[id(t)]", "id(xs) in {id(xs)}"),
    "isinstance": ("isinstance(t, torch.Tensor)", "isinstance(n, (int, str))",
        "isinstance(n, int | "
                   "None)", caught("isinstance(n, 1)"), "isinstance(xs, collections.abc.Sequence)",
                   "isinstance(True, int)", "isinstance(t, torch.FloatTensor)"),
    "issubclass": ("issubclass(bool, int)", "issubclass(Own, (KeyError, Exception))",
                   caught("issubclass(n, int)"), "issubclass(list, collections.abc.Iterable)"),
    "iter": ("list(iter(xs))", "k = iter(xs)\nR.append(next(k))\nR.append([*k])",
             "k = iter([1, 2, 3])\nR.append(list(iter(lambda: next(k), 3)))", caught("iter(n)")),
    "len": ("len(xs)", "len(t)", "len('abc')", "len({1, n})", caught("len(n)"), "len(Vec(t))"),
    "locals": ("sorted(locals())", "locals()['n']", "def g(a): return locals()\nR.append(g(n))"),
    "map": ("list(map(str, xs))", "list(map(lambda a, b: a * b, xs, xs))", "t, u = map(torch.relu, "
            "(t, t))", "sum(map(len, ['a', 'bc']))", "dict(map(lambda k: (k, t), xs))"),
    "max": ("max(xs)", "max(n, 2)", "max(xs, key=lambda k: -k)", caught("max([])"), "max([], "
            "default=n)", "max('a', 'b')", "max(n, t.shape[0])", caught("max(1, 'a')")),
    "min": ("min(xs)", "min(n, 2.5)", "min(xs, key=lambda k: -k)", "min([], default=None)",
            "min(t.shape)", "min((2, 'b'), (2, 'a'))"),
    "memoryview": ("memoryview(b'ab')[0]", "len(memoryview(bytearray(3)))"),
    "next": ("next(iter(xs))", "next(iter([]), n)", caught("next(iter([]))"), caught("next(xs)"),
             "k = (a for a in xs)\nR.append((next(k), next(k)))"),
    "object": ("object() == object()", "k = object()\nR.append(k is k)", "type(object()).__name__",
               caught("object().k = 1"), "[object()][0] is None"),
    "open": ("with open(os.devnull) as f: R.append(f.read())", caught("open('/no/such/file')")),
    "pow": ("pow(n, 2)", "pow(2, 5, n + 5)", "pow(t, 2)", caught("pow(0, -1)"), "pow(2, -1)"),
    "print": ("print(n)", "print('a', xs, sep='-', end='.')", "print(t.shape)", "print()",
              "print(f'{n}', *xs)"),
    "print: of a tensor": ("print(t)", "print('sum', t.sum())"),
    "property": ("class C:\n    p = property(lambda self: n)\nR.append(C().p)",),
    "range": ("list(range(n))", "range(0, 9, 2)[n - 1]", "len(range(5, 0, -1))", "n in range(3)",
              "range(3) == range(0, 3)", caught("range(1, 2, 0)"), "for k in range(n, 0, -1): t "
                  "= t + k",
              "list(reversed(range(n)))", "range(n)", caught("range(1.5)"), "range(9)[1:n]"),
    "reversed": ("list(reversed(xs))", "for k in reversed('ab'): R.append(k)", "list(reversed({1: "
                 "2}))", caught("reversed(n)"), "[*reversed((t, n))]"),
    "round": ("round(n / 7, 2)", "round(2.5)", "round(-3.5)", "round(1234, -2)", caught(
        "round('a')"),
              "round(float(n))"),
    "setattr": ("p = Pair(t)\nsetattr(p, 'b', n)\nR.append(p.b)", "setattr(x, 'tag', "
        "n)\nR.append(x.tag)",
                caught("setattr(n, 'k', 1)")),
    "sorted": ("sorted(xs)", "sorted(xs, reverse=True)", "sorted('bca', key=str.upper)",
               "sorted({'b': 1, 'a': 2})", caught("sorted([1, 'a'])"),
               "sorted([(2, 'b'), (1, 'z')])",
               "sorted(xs, key=lambda k: (k % 2, -k))", "sorted({3, 1, 2})"),
    "staticmethod": ("class C:\n    @staticmethod\n    def m(): return n\nR.append(C.m())",),
    "sum": ("sum(xs)", "sum([t, t])", "sum(xs, n)", "sum([[1], [2]], [])", caught("sum(['a'])"),
            "sum(t * k for k in xs)", "sum([0.1] * 10)"),
    "super": ("class C(Vec):\n    def __len__(self): return super().__len__() + 1\n"
              "R.append(len(C(t)))", "super(Shade, Shade.DARK).__class__.__name__"),
    "type": ("type(n)", "type(t) is torch.Tensor", "type('C', (), {'k': n})().k",
        "type(xs) == list",
             "type(Pair(t)).__name__", "type(n)('5')", "type(None)", "type(xs)(range(n))"),
    "vars": ("vars(Pair(t, n))", "sorted(vars(Pair(t)))", caught("vars(n)"), "'k' in vars(Shade)",
             "p = Pair(t)\nvars(p)['b'] = 9\nR.append(p.b)"),
    "zip": ("list(zip(xs, 'ab'))", "dict(zip('ab', xs))", "list(zip(*[(1, 2), (3, 4)]))",
            caught("list(zip(xs, [1], strict=True))"), "for a, b in zip(t, xs): R.append(a * b)",
            "list(zip())", "a, b = zip((1, 2), (t, n))\nR.append(b)"),
}  # fmt: skip
#: what ends, stops or asks a person
NOT_USED = frozenset(
    "breakpoint copyright credits exit quit license help input False True None __doc__ __name__ "
    "__loader__ __package__ __spec__ _ __build_class__ __debug__".split()
)
ARGUMENTS_OF_EXCEPTIONS = {
    "UnicodeDecodeError": "'utf-8', b'a', 0, 1, 'why'",
    "UnicodeEncodeError": "'utf-8', 'a', 0, 1, 'why'",
    "UnicodeTranslateError": "'a', 0, 1, 'why'",
    "ExceptionGroup": "'g', [KeyError(n)]",
    "BaseExceptionGroup": "'g', [KeyError(n)]",
}
#: types: what makes a value, and its module
TYPES: dict[str, str] = {
    "int": "7", "float": "2.5", "complex": "(2 + 3j)", "str": "'Hello World'", "bytes": "b'a b'",
    "bytearray": "bytearray(b'ab')", "list": "[3, 1, 2]", "tuple": "(2, 1, 2)",
    "dict": "{'a': 1, 1: [2]}", "set": "{1, 2}", "frozenset": "frozenset({1, 3})",
    "range": "range(5, 0, -2)", "slice": "slice(1, 9, 2)", "memoryview": "memoryview(b'abcd')",
    "bool": "True", "property": "property(lambda self: 3)", "dict_keys": "{'a': 1}.keys()",
    "dict_items": "{'a': 1}.items()", "dict_values": "{'a': 1}.values()",
    "generator": "(k for k in [1, 2])", "function": "(lambda k: k)", "type": "int",
    "ValueError": "ValueError('v', 1)", "StopIteration": "StopIteration(4)",
    "builtin_function_or_method": "len", "method": "Vec(1).__len__", "code": "add.__code__",
    "deque": "collections.deque([1, 2], maxlen=3)", "Counter": "collections.Counter('aab')",
    "OrderedDict": "collections.OrderedDict(a=1, b=2)",
    "defaultdict": "collections.defaultdict(list, a=[1])",
    "ChainMap": "collections.ChainMap({}, {'a': 3})", "UserDict": "collections.UserDict(a=1)",
    "UserList": "collections.UserList([1, 2])", "UserString": "collections.UserString('ab')",
    "namedtuple": "collections.namedtuple('P', 'a b')(1, 2)",
    "partial": "functools.partial(add, 1)", "Match": "re.match('(a)(?P<k>b?)', 'abc')",
    "Pattern": "re.compile('[ab]+')", "SimpleNamespace": "types.SimpleNamespace(a=1)",
    "MappingProxyType": "types.MappingProxyType({'a': 1})",
    "Fraction": "fractions.Fraction(3, 4)", "Decimal": "decimal.Decimal('3.14')",
    "date": "datetime.date(2024, 2, 29)", "datetime": "datetime.datetime(2024, 2, 29, 12, 30)",
    "timedelta": "datetime.timedelta(days=1, seconds=30)", "time": "datetime.time(12, 30)",
    "timezone": "datetime.timezone.utc", "array": "array.array('i', [1, 2, 3])",
    "UUID": "uuid.UUID(int=5)", "PurePosixPath": "pathlib.PurePosixPath('a/b.txt')",
    "StringIO": "io.StringIO('a\\nb')", "BytesIO": "io.BytesIO(b'ab')",
    "Struct": "struct.Struct('<ih')",
    "Queue": "queue.Queue()", "LifoQueue": "queue.LifoQueue()",
    "PriorityQueue": "queue.PriorityQueue()", "SimpleQueue": "queue.SimpleQueue()",
    "Template": "string.Template('$a b')", "Logger": "logging.getLogger('conformance')",
    "hash object": "hashlib.sha256(b'a')", "Lock": "threading.Lock()",
    "Event": "threading.Event()", "Size": "torch.Size([2, 3])", "dtype": "torch.float32",
    "device": "torch.device('cpu')", "NormalDist": "statistics.NormalDist(0, 1)",
}  # fmt: skip
MODULES_OF_TYPES = (
    "import array, datetime, decimal, fractions, hashlib, io, logging, pathlib, queue, random, "
    "struct, threading, uuid, os"
)
SHOWN_BY_ADDRESS = (
    "generator", "Match", "hash object", "Lock", "Event", "Logger", "StringIO", "BytesIO",
)  # fmt: skip
#: methods that wait, have no fixed answer, or change the process
NOT_CALLED = frozenset(
    "get put join wait acquire acquire_lock release_lock now today utcnow fromtimestamp "
    "utcfromtimestamp timestamp astimezone "
    "setLevel addHandler addFilter _check release mro __subclasses__ copy_context block_size "
    "handle makeRecord removeHandler removeFilter callHandlers from_samples is_mount "
    "get_nowait put_nowait task_done buffer_info findCaller".split()
)
BY_HAND: dict[str, tuple[str, ...]] = {
    "Queue.put and get": ("q = queue.Queue()\nq.put(n)\nR.append((q.get(), q.empty(), q.qsize()))",
                          "q = queue.Queue()\nq.put(t)\nt = q.get_nowait()",
                          "q = queue.Queue()\n" + caught("q.get_nowait()")),
    "SimpleQueue.put and get": ("q = queue.SimpleQueue()\nq.put(n)\nR.append(q.get())",),
    "LifoQueue.put and get": ("q = queue.LifoQueue()\nq.put(n)\nR.append(q.get())",),
    "PriorityQueue.put and get": ("q = queue.PriorityQueue()\nq.put(n)\nR.append(q.get())",),
    "Lock.acquire and release": ("k = threading.Lock()\nR.append(k.acquire())\nk.release()",),
    "datetime.now and today": ("datetime.datetime.now() > datetime.datetime(2000, 1, 1)",
                               "datetime.date.today() > datetime.date(2000, 1, 1)"),
    "datetime.timestamp": ("k = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)\n"
                           "R.append(k.timestamp())",),
}  # fmt: skip


def functions() -> Iterator[Construct]:
    """Built-in functions and classes; those without a row of the table by drawn calls."""
    for name in [*FUNCTIONS, *(n for n in dir(builtins) if n not in FUNCTIONS)]:
        made = getattr(builtins, name.partition(":")[0])
        if _is_exception(made) or name in NOT_USED - {"__build_class__", "__debug__"}:
            continue
        bodies = FUNCTIONS.get(name, ())
        if name not in FUNCTIONS:
            bodies = tuple(drawing.calls(f"{name}({{}})", made, False))
        yield Construct("Built-in functions", name, bodies, "import os")


def exceptions() -> Iterator[Construct]:
    """Every built-in exception: made, raised, caught, looked at."""
    for name in dir(builtins):
        if not _is_exception(getattr(builtins, name)) or name == "EncodingWarning":
            continue
        given = ARGUMENTS_OF_EXCEPTIONS.get(name, "'a', n")
        whole = (
            f"try:\n    raise {name}({given})\nexcept {name} as error:\n"
            "    R.append(text_of(error))\n    R.append([*map(str, error.args)])",
            f"k = {name}({given})\nR.append((str(k), repr(k), type(k).__name__))",
            f"issubclass({name}, Exception)",
        )
        inner = (
            f"def g(): raise {name}({given})\ntry: g()\n"
            "except BaseException as e: R.append(repr(e))",
            f"try: raise {name}\nexcept BaseException as e: R.append(e.args)",
        )
        yield Construct("Exceptions", name, (together(whole), together(inner)))


def _is_exception(made: Any) -> bool:
    return isinstance(made, type) and issubclass(made, BaseException)


def methods() -> Iterator[Construct]:
    """Methods and attributes of every type of the table."""
    for kind, made in TYPES.items():
        works, instance = drawing.tried(f"r = {made}", MODULES_OF_TYPES)
        if not works:
            raise ValueError(made)
        for name in dir(instance if kind != "type" else type):
            if name.startswith("_") and name not in ("_replace", "_asdict", "_fields", "_make"):
                continue
            if name in NOT_CALLED:
                continue
            if hasattr(instance, name):
                bodies = functools.partial(_uses, kind, made, name, instance)
                more = {"a": made}
                yield Construct("Methods", f"{kind}.{name}", bodies, MODULES_OF_TYPES, more)
    for name, bodies in BY_HAND.items():
        yield Construct("Methods", name, bodies, MODULES_OF_TYPES)


def _uses(kind: str, made: str, name: str, instance: Any) -> tuple[str, ...]:
    found = getattr(instance, name)
    if not callable(found):
        return (f"R.append(shown(({made}).{name}))\nR.append(shown(a.{name}))",)
    static = inspect.getattr_static(type(instance), name, None)
    bound = not isinstance(static, staticmethod | classmethod)
    texts = drawing.calls(
        f"a.{name}({{}})", getattr(type(instance), name, found), bound and hasattr(type(instance),
        name),
        f"a = {made}", MODULES_OF_TYPES,
    )  # fmt: skip
    seen = "" if kind in SHOWN_BY_ADDRESS or "Queue" in kind else "\nR.append(shown(a))"
    given = [f"{text}{seen}" for text in texts]
    own = [f"a = {made}\n{text}" for text in given]
    return (together([*given, *own]),) if texts else ()


def constructs() -> Iterator[Construct]:
    """Every row."""
    yield from functions()
    yield from exceptions()
    yield from methods()
