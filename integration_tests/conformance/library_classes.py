"""Modules about classes and types: what programs call of each.

In: nothing. Out: by module and name, texts of uses. Invariant: a text is a statement, or an
expression whose value is kept.
"""

from __future__ import annotations

from integration_tests.conformance.construct import caught

CLASSES: dict[str, dict[str, tuple[str, ...]]] = {
    "enum": {
        "Enum": ("Shade(n % 2 + 1).name", "[k.name for k in Shade]", "Shade['DARK'].value",
            "Shade.DARK",
                 "class E(enum.Enum):\n    A = 1\nR.append(E.A.value)"),
        "Flag": ("class E(enum.Flag):\n    A = 1\n    B = 2\nR.append((E.A | E.B).value)",),
        "auto": ("class E(enum.Enum):\n    A = enum.auto()\nR.append(E.A.value)",),
        "IntEnum": ("t + Shade.DARK", "Shade.DARK > 1", "range(Shade.DARK)", "xs[Shade.LIGHT]"),
        "StrEnum": ("class E(enum.StrEnum):\n    A = enum.auto()\nR.append(E.A == 'a')",),
        "unique": ("@enum.unique\nclass E(enum.Enum):\n    A = 1\nR.append(E.A.name)",),
        "functional": ("enum.Enum('E', 'A B').B.value",),
        "member and nonmember": ("class E(enum.Enum):\n    A = enum.member(1)\n    k = "
                                 "enum.nonmember(2)\nR.append(E.k)",),
    },
    "dataclasses": {
        "dataclass": ("Pair(t, n).b", "Pair(t) == Pair(t, 2)", "repr(Pair(n))",
            "R.append(Pair(t, n))",
                      "@dataclasses.dataclass\nclass D:\n    a: int = 1\nR.append(D(n).a)",
                      "@dataclasses.dataclass(frozen=True)\nclass D:\n    a: object\nt = D(t).a",
                      caught("Pair()")),
        "field": ("@dataclasses.dataclass\nclass D:\n    a: list = "
                  "dataclasses.field(default_factory=list)\n"
                  "R.append(D().a)", "dataclasses.fields(Pair)[1].default"),
        "fields": ("[f.name for f in dataclasses.fields(Pair)]", "[getattr(Pair(t), f.name) for "
            "f in "
                   "dataclasses.fields(Pair(t))]", caught("dataclasses.fields(n)")),
        "asdict": ("dataclasses.asdict(Pair(n))", "dataclasses.asdict(Pair([xs], Pair(1)))",
                   "dataclasses.asdict(Pair(t))['b']"),
        "astuple": ("dataclasses.astuple(Pair(n))",),
        "replace": ("dataclasses.replace(Pair(t), b=n).b", caught("dataclasses.replace(Pair(t), "
            "z=n)")),
        "is_dataclass": ("dataclasses.is_dataclass(Pair)", "dataclasses.is_dataclass(n)"),
        "make_dataclass": ("dataclasses.make_dataclass('D', ['a'])(n).a",),
        "MISSING": ("dataclasses.fields(Pair)[0].default is dataclasses.MISSING",),
        "KW_ONLY": ("@dataclasses.dataclass\nclass D:\n    _: dataclasses.KW_ONLY\n    a: int = "
                    "1\nR.append(D(a=n).a)",),
        "InitVar": ("@dataclasses.dataclass\nclass D:\n    a: dataclasses.InitVar[int]\n"
                    "    def __post_init__(self, a): self.k = a\nR.append(D(n).k)",),
        "FrozenInstanceError": (
            "@dataclasses.dataclass(frozen=True)\nclass D:\n    a: int\n" + caught("D(n).a = 2"),),
    },
    "contextlib": {
        "contextmanager": ("with noted('a') as k: R.append(k)", "@noted('d')\ndef g(): return "
            "n\nR.append(g())",
                           "@contextlib.contextmanager\ndef own():\n    yield n\nwith own() as "
                           "k: t = t + k",
                           "try:\n    with noted('a'): raise Own\nexcept Own: t = t + 1"),
        "closing": ("with contextlib.closing(doubled(3)) as k: R.append(next(k))",),
        "suppress": ("with contextlib.suppress(KeyError, IndexError): xs[9]",
                     caught("with contextlib.suppress(KeyError): xs[9]")),
        "redirect_stdout": ("k = io.StringIO()\nwith contextlib.redirect_stdout(k): "
                            "print(n)\nR.append(k.getvalue())",),
        "redirect_stderr": ("k = io.StringIO()\nwith contextlib.redirect_stderr(k): print(n, "
                            "file=sys.stderr)\n"
                            "R.append(k.getvalue())",),
        "nullcontext": ("with contextlib.nullcontext(): t = t + 1", "with "
            "contextlib.nullcontext(n) as k: t = t + k"),
        "ExitStack": ("with contextlib.ExitStack() as s:\n    "
                      "R.append(s.enter_context(noted('a')))",
                      "with contextlib.ExitStack() as s: s.callback(LOG.append, n)",
                      "with contextlib.ExitStack() as s:\n    s.enter_context(torch.no_grad())\n "
                      "   t = t + 1",
                      "s = contextlib.ExitStack()\ns.push(lambda *e: LOG.append(n))\ns.close()",
                      "with contextlib.ExitStack() as s:\n    s.enter_context(noted('a'))\n    k "
                      "= s.pop_all()\nk.close()"),
        "AsyncExitStack": ("type(contextlib.AsyncExitStack()).__name__",),
        "ContextDecorator": ("class C(contextlib.ContextDecorator):\n    def __enter__(self): "
                             "LOG.append(1)\n"
                             "    def __exit__(self, *e): LOG.append(2)\n@C()\ndef g(): return "
                             "n\nR.append(g())",),
        "asynccontextmanager": ("@contextlib.asynccontextmanager\nasync def g(): yield "
                                "n\nR.append(g.__name__)",),
        "chdir": ("with contextlib.chdir('.'): t = t + 1",),
        "AbstractContextManager": ("isinstance(Swallow(), contextlib.AbstractContextManager)",),
    },
    "types": {
        "SimpleNamespace": ("types.SimpleNamespace(a=t, b=n).a",
            "k = types.SimpleNamespace()\nk.a = n\nR.append(k.a)",
                            "R.append(types.SimpleNamespace(a=n))",
                            "repr(types.SimpleNamespace(a=n))",
                            "vars(types.SimpleNamespace(a=n))", "types.SimpleNamespace(a=1) == "
                                "types.SimpleNamespace(a=1)",
                            "types.SimpleNamespace(**{'a': n})"),
        "MappingProxyType": ("types.MappingProxyType({'a': n})['a']", caught(
            "types.MappingProxyType({})['k'] = 1")),
        "MethodType": ("types.MethodType(add, t)(n)", "p = Pair(t)\np.m = "
                                                      "types.MethodType(lambda s, k: s.b + k, p)\n"
                       "R.append(p.m(n))"),
        "FunctionType": ("isinstance(add, types.FunctionType)",
            "types.FunctionType(add.__code__, globals())(1, 2)"),
        "GeneratorType": ("isinstance(doubled(2), types.GeneratorType)",),
        "ModuleType": ("isinstance(math, types.ModuleType)", "types.ModuleType('m').__name__"),
        "NoneType": ("isinstance(None, types.NoneType)",), "UnionType": (
            "isinstance(int | str, types.UnionType)",),
        "GenericAlias": ("isinstance(list[int], types.GenericAlias)",),
        "BuiltinFunctionType": ("isinstance(len, types.BuiltinFunctionType)",),
        "LambdaType": ("isinstance(lambda: 1, types.LambdaType)",),
        "CodeType": ("isinstance(add.__code__, types.CodeType)",),
        "TracebackType": ("try: 1 / 0\nexcept Exception as e: "
                          "R.append(isinstance(e.__traceback__, types.TracebackType))",),
        "new_class": ("types.new_class('C', (Plain0,)).__name__",), "resolve_bases": (
            "types.resolve_bases((int,))",),
        "DynamicClassAttribute": ("class C:\n    k = types.DynamicClassAttribute(lambda self: "
                                  "n)\nR.append(C().k)",),
        "coroutine": ("@types.coroutine\ndef g(): yield n\nR.append(g().send(None))",),
        "CellType": ("types.CellType(n).cell_contents",),
    },
    "typing": {
        "Any": ("k: typing.Any = n\nR.append(k)",), "Optional": ("typing.Optional[int]",
            "def g(a: typing.Optional[int] = None): "
                "return a\nR.append(g(n))"), "Union": ("typing.Union[int, str]",
                "typing.Union[int, None] == typing.Optional[int]"),
        "cast": ("typing.cast(int, t)", "typing.cast('torch.Tensor', t) + 1"), "List": (
            "typing.List[int]",),
        "Dict": ("typing.Dict[str, int]", "typing.Dict[str, int]().get('a')"), "Tuple": (
            "typing.Tuple[int, ...]",),
        "Callable": ("typing.Callable[[int], str]",), "Literal": ("typing.Literal['a', 1]",
            "typing.get_args(typing.Literal['a'])"),
        "TypeVar": ("typing.TypeVar('T').__name__",), "Generic": ("class "
            "C(typing.Generic[typing.TypeVar('T')]): k = n\nt = t + C().k",),
        "NamedTuple": ("class P(typing.NamedTuple):\n    a: int\nR.append(P(n).a)",
            "typing.NamedTuple('P', [('a', int)])(n).a"),
        "TypedDict": ("class D(typing.TypedDict):\n    a: int\nR.append(D(a=n))",), "Protocol": (
            "class P(typing.Protocol):\n    def m(self): ...\nR.append(P.__name__)",),
        "runtime_checkable": ("isinstance(n, typing.SupportsInt)", "isinstance(t, typing.Sized)",
                              "isinstance('a', typing.SupportsIndex)"),
        "get_type_hints": ("typing.get_type_hints(Pair)['b']",), "get_origin": (
            "typing.get_origin(typing.List[int])",),
        "get_args": ("typing.get_args(typing.Union[int, str])",), "TYPE_CHECKING": (
            "typing.TYPE_CHECKING",),
        "overload": ("@typing.overload\ndef g(a: int): ...\ndef g(a): return a\nR.append(g(n))",),
        "final": ("@typing.final\ndef g(): return n\nR.append(g())",), "NewType": (
            "typing.NewType('K', int)(n)",),
        "assert_never": (caught("typing.assert_never(n)"),), "assert_type": (
            "typing.assert_type(n, int)",),
        "Annotated": ("typing.Annotated[int, 'm']",), "ClassVar": ("typing.ClassVar[int]",),
            "Final": ("k: typing.Final = n\nR.append(k)",),
        "reveal_type": ("typing.is_typeddict(dict)",), "no_type_check": (
            "typing.no_type_check(add)(n)",),
        "Sequence": ("isinstance(xs, typing.Sequence)",), "Iterable": (
            "isinstance(xs, typing.Iterable)",),
        "Type": ("typing.Type[int]",), "ParamSpec": ("typing.ParamSpec('P').__name__",), "Self": (
            "typing.Self",),
        "NoReturn": ("typing.NoReturn",), "Text": ("typing.Text('a')",),
    },
    "abc": {
        "ABC": ("class C(abc.ABC):\n    k = n\nt = t + C().k", caught("Abstract()"),
            "Concrete().m()", "isinstance(Concrete(), Abstract)",
                "issubclass(Concrete, Abstract)"),
        "abstractmethod": ("Abstract.m.__isabstractmethod__", "class C(Abstract):\n    def "
            "m(self): return n\nR.append(C().m())"),
        "ABCMeta": ("type(Abstract) is abc.ABCMeta", "Abstract.__abstractmethods__"), "register": (
            "isinstance(1.5, Registered)",
                    "class C: pass\nAbstract.register(C)\nR.append(issubclass(C, Abstract))"),
        "get_cache_token": ("abc.get_cache_token() == abc.get_cache_token()",),
        "update_abstractmethods": ("abc.update_abstractmethods(Concrete) is Concrete",),
    },
    "inspect": {
        "signature": ("[*inspect.signature(add).parameters]", "str(inspect.signature(add))",
                      "inspect.signature(Pair).parameters['b'].default",
                      "inspect.signature(add).bind(1).arguments",
                      "'b' in inspect.signature(lambda a, b: a).parameters",
                      "inspect.signature(torch.nn.Linear.forward).parameters.keys()"),
        "Parameter": ("inspect.signature(add).parameters['a'].kind == "
                      "inspect.Parameter.POSITIONAL_OR_KEYWORD",
                      "inspect.signature(add).parameters['a'].default is inspect.Parameter.empty"),
        "isclass": ("inspect.isclass(Pair)", "inspect.isclass(n)"), "isfunction": (
            "inspect.isfunction(add)",
                    "inspect.isfunction(len)"), "ismethod": ("inspect.ismethod(Vec(t).__len__)",),
                    "ismodule": ("inspect.ismodule(math)",),
        "isbuiltin": ("inspect.isbuiltin(len)",), "isgenerator": (
            "inspect.isgenerator(doubled(1))",),
        "isgeneratorfunction": ("inspect.isgeneratorfunction(doubled)",), "iscoroutinefunction": (
            "inspect.iscoroutinefunction(add)",),
        "isabstract": ("inspect.isabstract(Abstract)",), "isroutine": ("inspect.isroutine(len)",),
            "isdatadescriptor": (
            "inspect.isdatadescriptor(property())",), "iscode": ("inspect.iscode(add.__code__)",),
        "getmembers": ("len(inspect.getmembers(Pair(1))) > 3",), "getattr_static": (
            "inspect.getattr_static(Pair(t), 'b')",),
        "getdoc": ("inspect.getdoc(len)[:3]",), "getmro": ("inspect.getmro(Pair)[-1] is object",),
            "getmodule": (
            "inspect.getmodule(torch.nn.Linear).__name__",), "getfullargspec": (
            "inspect.getfullargspec(add).args",),
        "getsource": (caught("inspect.getsource(add)"), "len(inspect.getsource(functools.wraps)) "
                                                        "> 9"),
        "getfile": (caught("inspect.getfile(math)"),), "unwrap": ("inspect.unwrap(plus).__name__",),
        "currentframe": ("inspect.currentframe() is not None",
            "inspect.currentframe().f_code.co_name"),
        "stack": ("len(inspect.stack()) > 0", "inspect.stack()[0].function"), "cleandoc": (
            "inspect.cleandoc('  a')",),
        "getclosurevars": ("inspect.getclosurevars(add).unbound",), "getcallargs": (
            "inspect.getcallargs(add, 1)",),
    },
}  # fmt: skip
