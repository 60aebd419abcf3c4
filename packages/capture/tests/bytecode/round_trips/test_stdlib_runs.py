"""Code of the standard library gives the same results after a round trip as before it."""

import importlib
import importlib.util
import io
import sys
import types
import unittest
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from bytecode_meaning import rebuilt

PYTHON = sys.version_info[:2]


@contextmanager
def remade(name: str) -> Iterator[types.ModuleType]:
    """The module, compiled from its source and run from re-assembled code, under another name."""
    original = importlib.import_module(name)
    spec = importlib.util.find_spec(name)
    with open(spec.origin, "rb") as source:
        code = compile(source.read(), spec.origin, "exec", dont_inherit=True)
    module = types.ModuleType(f"{name}_remade")
    module.__file__, module.__package__ = original.__file__, original.__package__
    sys.modules[module.__name__] = module  # dataclasses looks itself up there
    try:
        exec(rebuilt(code), module.__dict__)
        yield module
    finally:
        del sys.modules[module.__name__]
    return module


def use_textwrap(m):
    text = "The quick brown fox, jumping over it all, is lazier than any dog. " * 5
    return (
        m.wrap(text, 31),
        m.fill(text, 50, initial_indent="> "),
        m.dedent("  a\n    b\n  c"),
        (m.shorten(text, 40)),
    )


def use_heapq(m):
    heap = [7, 3, 9, 1, 8, 2]
    m.heapify(heap)
    popped = [m.heappop(heap) for _ in range(3)]
    return (
        popped,
        heap,
        list(m.merge([1, 4], [2, 3], key=lambda v: -v, reverse=True)),
        (m.nsmallest(2, "hello", key=ord)),
    )


def use_difflib(m):
    a, b = "one\ntwo\nthree\n".splitlines(True), "one\ntoo\nthree\nfour\n".splitlines(True)
    return list(m.unified_diff(a, b)), list(m.ndiff(a, b)), m.get_close_matches("appel", ["apple"])


def use_json(m):
    text = '{"a": [1, 2.5, null, true], "b": {"c": "d\\u00e9"}}'
    decoded = m.JSONDecoder().decode(text)
    failures = []
    for bad in ("{", "[1,", '"a', "{1: 2}", "nope"):
        with pytest.raises(ValueError) as caught:
            m.JSONDecoder().decode(bad)
        failures.append(str(caught.value))
    return decoded, failures


def use_dataclasses(m):
    @m.dataclass(order=True)
    class Point:
        x: int
        y: int = 3
        tags: list = m.field(default_factory=list, compare=False)

    points = sorted([Point(2), Point(1, 9), Point(1, 2, ["t"])])
    frozen = m.make_dataclass("F", ["a"], frozen=True)(1)
    with pytest.raises(AttributeError) as caught:
        frozen.a = 2
    return [repr(p) for p in points], m.asdict(points[0]), str(caught.value)


def use_fractions(m):
    f = m.Fraction
    return str(f("3.25") + f(1, 3)), str(f(10, 4) ** -2), str(f(3.141592).limit_denominator(100))


def use_configparser(m):
    parser = m.ConfigParser()
    parser.read_string("[a]\nx = 1\ny = %(x)s2\n[b]\nz: yes\n")
    return {s: dict(parser[s]) for s in parser.sections()}, parser.getboolean("b", "z")


def use_argparse(m):
    parser = m.ArgumentParser(prog="p", exit_on_error=False)
    parser.add_argument("--n", type=int, default=3, help="a number")
    parser.add_argument("rest", nargs="*")
    return vars(parser.parse_args(["--n", "5", "u", "v"])), parser.format_help()


def use_contextlib(m):
    log = []

    @m.contextmanager
    def managed(name):
        log.append(f"in {name}")
        try:
            yield name
        except KeyError as error:
            log.append(f"caught {error}")
        finally:
            log.append(f"out {name}")

    with m.ExitStack() as stack:
        stack.enter_context(managed("a"))
        stack.enter_context(managed("b"))
        with managed("c"):
            raise KeyError("k")
    with m.suppress(ZeroDivisionError):
        _ = 1 / 0
    return log


def use_statistics(m):
    data = [2.5, 3.25, 5.5, 11.25, 11.75]
    return (
        m.mean(data),
        m.stdev(data),
        m.median_grouped(data),
        m.linear_regression(data, data[::-1]),
    )


def use_pprint(m):
    return m.pformat({"k" * i: [list(range(i))] * 3 for i in range(9)}, width=40)


def use_ast(m):
    tree = m.parse("def f(a, *b, c=1, **d):\n    return [x for x in a if x] or {**d}\n")
    return m.unparse(tree), m.dump(tree), m.literal_eval("{'a': (1, -2.0, None)}")


USES = {
    "textwrap": use_textwrap,
    "heapq": use_heapq,
    "difflib": use_difflib,
    "json.decoder": use_json,
    "dataclasses": use_dataclasses,
    "fractions": use_fractions,
    "configparser": use_configparser,
    "argparse": use_argparse,
    "contextlib": use_contextlib,
    "statistics": use_statistics,
    "pprint": use_pprint,
    "ast": use_ast,
}


@pytest.mark.parametrize("name", USES)
def test_results_are_those_of_the_original(name):
    expected = USES[name](importlib.import_module(name))
    with remade(name) as module:
        got = USES[name](module)
    assert repr(got) == repr(expected)


# CPython's own tests of the language, run from re-assembled code: what passes as compiled passes
# after a round trip.
LANGUAGE_TESTS = [
    "test_grammar",
    "test_generators",
    "test_with",
    "test_raise",
    "test_scope",
    "test_listcomps",
    "test_coroutines",
    "test_patma",
    "test_unpack_ex",
    "test_exceptions",
    "test_except_star",
    "test_exception_variations",
    "test_super",
    "test_fstring",
    "test_extcall",
    "test_keywordonlyarg",
    "test_positional_only_arg",
    "test_descr",
    "test_dictcomps",
    "test_setcomps",
    "test_genexps",
    "test_augassign",
    "test_named_expressions",
    "test_class",
    "test_decorators",
    "test_asyncgen",
    "test_traceback",
    "test_sys_settrace",
]


@contextmanager
def suite_of(name: str, change) -> Iterator[unittest.TestSuite]:
    """CPython's tests of that name, from changed code, while its module is the imported one."""
    spec = importlib.util.find_spec(f"test.{name}")
    with open(spec.origin, "rb") as source:
        code = compile(source.read(), spec.origin, "exec", dont_inherit=True)
    module = types.ModuleType(f"test.{name}")
    module.__file__, module.__package__, module.__spec__ = spec.origin, "test", spec
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        exec(change(code), module.__dict__)
        yield unittest.defaultTestLoader.loadTestsFromModule(module)
    finally:
        del sys.modules[module.__name__]
        if before is not None:
            sys.modules[module.__name__] = before


def outcome(name: str, change) -> tuple[int, list[str]]:
    """How many tests ran, and the ids of those that did not pass."""
    with suite_of(name, change) as suite:
        result = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(suite)
    failed = [test.id() for test, _ in result.failures + result.errors]
    return result.testsRun, sorted(failed)


@pytest.mark.sweep(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LANGUAGE_TESTS)
def test_language_tests_of_cpython(name, monkeypatch):
    # some end the stack on purpose where nothing can be raised: pytest would fail to tell of it
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    if importlib.util.find_spec("test") is None or importlib.util.find_spec(f"test.{name}") is None:
        pytest.skip(f"this Python comes without its test.{name}")
    ran, failed = outcome(name, rebuilt)
    with suite_of(name, lambda code: code) as suite:
        there = suite.countTestCases()
    if failed or ran != there:  # as compiled, too?
        ran_before, failed_before = outcome(name, lambda code: code)
        assert ran == ran_before
        assert set(failed) <= set(failed_before)
