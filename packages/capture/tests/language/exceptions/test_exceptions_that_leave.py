# (the programs under test are written as users write them)
"""An exception that a handler keeps, gives away or hands to a break: Python raises it, where the
graph of what comes before ends, and every field and line of it is eager's."""

import itertools
import linecache
import operator
import textwrap
import traceback

import pytest
import torch
from flambeau_capture import explain
from flambeau_capture.api import compiler_of
from flambeau_capture.interp.top_frame import TopFrame

RAISERS = {
    "key": "TABLE['absent']",
    "attribute": "TABLE.absent",
    "index": "[1][9]",
    "stop": "next(iter(()))",
    "value": "raise ValueError('v', 3)",
    "zero": "1 // 0",
    "type": "len(3)",
    "class": "raise NotImplementedError",
    "own": "raise Own(3, t)",
    "from": "raise ValueError('b') from KeyError('a')",
    "from none": "raise ValueError('b') from None",
    "group": "raise ExceptionGroup('g', [ValueError('a'), KeyError('b'), Own(3)])",
    "nested": "raise ExceptionGroup('g', [ExceptionGroup('h', [ValueError('a')]), Own(1)])",
    "helper": "helper(t)",
    "shape": "t @ torch.ones(7, 7)",
    "reshape": "t.reshape(5)",
    "absent dimension": "t.sum(5)",
    "exit": "raise SystemExit(3)",
}
KEEPERS = {
    "appended": """
        try:
            RAISE
        except BaseException as error:
            log.append(error)
    """,
    "noted": """
        try:
            RAISE
        except BaseException as error:
            error.add_note("n")
            error.extra = 3
            log.append((error.__notes__, vars(error)))
    """,
    "cause": """
        try:
            try:
                RAISE
            except BaseException as first:
                raise RuntimeError("second") from first
        except RuntimeError as error:
            log.append((error, error.__cause__))
    """,
    "context": """
        try:
            try:
                RAISE
            finally:
                TABLE["another"]
        except KeyError as error:
            log.append(error.__context__)
    """,
    "attempted": """
        def attempt():
            try:
                RAISE
            except BaseException as error:
                return error
        log.append(attempt())
    """,
    "traceback": """
        try:
            RAISE
        except BaseException as error:
            trace = error.__traceback__
            log.append([])
            while trace is not None:
                log[-1].append((trace.tb_lineno, trace.tb_frame.f_code.co_name))
                trace = trace.tb_next
    """,
    "information": """
        try:
            RAISE
        except BaseException:
            kind, error, trace = sys.exc_info()
            log.append((kind.__name__, error, trace.tb_lineno))
    """,
    "star": """
        try:
            try:
                RAISE
            except* ValueError as group:
                log.append(group)
            except* KeyError:
                raise
        except BaseException as error:
            log.append(error)
    """,
    "exit": """
        class Manager:
            def __enter__(self):
                return self
            def __exit__(self, kind, value, trace):
                log.append(value)
                return True
        with Manager():
            RAISE
    """,
}
HEAD = """\
import sys
import torch
TABLE = {"a": 1}
class Own(Exception):
    def __init__(self, code, *more):
        super().__init__(f"own {code}", *more)
        self.code = code
def helper(t):
    u = t * 2
    raise Own(u.dim())
def fn(t, log):
    t = t * 2
"""


def program(raiser, keeper):
    body = textwrap.dedent(KEEPERS[keeper]).strip().replace("RAISE", RAISERS[raiser])
    text = f"{HEAD}{textwrap.indent(body, '    ')}\n    return t + 1, log\n"
    name = f"<{raiser} {keeper}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace = {"__name__": "program"}
    exec(compile(text, name, "exec"), namespace)
    return namespace["fn"]


def seen(value):
    """All that there is to see of a result, of an exception too."""
    if isinstance(value, BaseException):
        frames = [(one.name, one.lineno) for one in traceback.extract_tb(value.__traceback__)]
        linked = [value.__cause__, value.__context__, *getattr(value, "exceptions", ())]
        said = (type(value).__name__, str(value), value.__suppress_context__)
        return said, seen(value.args), seen(vars(value)), list(map(seen, linked)), frames
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.dtype
    if isinstance(value, (list, tuple)):
        return list(map(seen, value))
    return {name: seen(value[name]) for name in value} if isinstance(value, dict) else value


@pytest.mark.parametrize("keeper", KEEPERS)
@pytest.mark.parametrize("raiser", RAISERS)
def test_it_is_what_it_is_in_eager(raiser, keeper, capture, backend):
    expected = seen(program(raiser, keeper)(torch.arange(4.0), []))
    compiled = capture(program(raiser, keeper))
    for _ in range(2):
        assert seen(compiled(torch.arange(4.0), [])) == expected
    assert operator.mul in backend.operations(0), "what comes before is a graph"


@pytest.mark.parametrize("raiser", ["key", "own", "helper", "group"])
def test_the_break_names_the_line_that_raises(raiser):
    fn = program(raiser, "appended")
    found = explain(fn, torch.arange(4.0), []).break_reasons
    assert [one.reason.id for one in found] == ["FB0010"]
    raised = []
    fn(torch.arange(4.0), raised)
    assert found[0].user_line.lineno == traceback.extract_tb(raised[0].__traceback__)[-1].lineno


# -- an exception that no handler keeps ------------------------------------------------------------

PASSED_ON = {
    "nothing": "RAISE",
    "finally": """
        log.append(1)
        try:
            RAISE
        finally:
            log.append(2)
    """,
    "other": """
        try:
            RAISE
        except (FloatingPointError, RecursionError):
            t = t * 7
    """,
    "again": """
        try:
            RAISE
        except BaseException:
            log.append(sys.exc_info()[0].__name__)
            raise
    """,
    "another": """
        try:
            RAISE
        except BaseException as first:
            raise LookupError("second") from first
    """,
    "within": """
        class Manager:
            def __enter__(self):
                return self
            def __exit__(self, kind, value, trace):
                log.append(kind.__name__)
        with Manager(), Manager():
            RAISE
    """,
    "inner": """
        def inner(u):
            for k in range(2):
                u = u * 3
                if k:
                    RAISE
            return u
        t = inner(t)
    """,
}
AFTER = """
    try:
        RAISE
    finally:
        log.append(t * 5)
"""


@pytest.mark.parametrize("body", PASSED_ON)
@pytest.mark.parametrize("raiser", RAISERS)
def test_a_frame_that_raises_is_one_graph(raiser, body, capture, backend, monkeypatch):
    monkeypatch.setitem(KEEPERS, body, PASSED_ON[body])
    expected, compiled = ended(program(raiser, body)), capture(program(raiser, body))
    for _ in range(2):
        assert ended(compiled) == expected
    assert compiler_of(compiled).records.breaks == []
    assert len(backend.graphs) == 1 and operator.mul in backend.operations(0)


WRITE = {"from", "from none", "stop"}  # before they raise


@pytest.mark.parametrize("raiser", sorted(RAISERS.keys() - WRITE))
def test_a_frame_that_raises_is_interpreted_once(raiser, capture, monkeypatch):
    monkeypatch.setitem(KEEPERS, "nothing", PASSED_ON["nothing"])
    met, execute = [], TopFrame.execute
    monkeypatch.setattr(TopFrame, "execute", lambda *given: met.append(given) or execute(*given))
    expected, compiled = ended(program(raiser, "nothing")), capture(program(raiser, "nothing"))
    assert ended(compiled) == expected
    assert len([frame for frame, *_ in met if frame.code.co_name == "fn"]) == 1


@pytest.mark.parametrize("raiser", ["key", "own", "helper"])
def test_what_is_computed_on_the_way_out_is_not_in_the_graph(raiser, capture, monkeypatch):
    monkeypatch.setitem(KEEPERS, "after", AFTER)
    expected, compiled = ended(program(raiser, "after")), capture(program(raiser, "after"))
    assert ended(compiled) == expected
    assert [one.reason.id for one in compiler_of(compiled).records.breaks] == ["FB0010"]


def ended(fn):
    log = []
    with pytest.raises(BaseException) as raised:
        fn(torch.arange(4.0), log)
    found = seen(raised.value)
    frames = [one for one in found[-1] if one[0] != "ended"]
    return *found[:-1], [one for one in frames if one[0] in ("fn", "inner", "helper")], seen(log)


# -- what the frames of a traceback hold -----------------------------------------------------------

HELD = {
    "object": "a = made('a')",
    "tensor": "a = t + 3\ntrack(a)",
    "argument": "a = given",
    "list": "a = [made('a')]",
    "cell": "a = made('a')\ninner = lambda: a",
    "temporary": "str(made('a'))\na = 1",
}
RAISED = {
    "raise": "raise Own('x')",
    "deep": "deep(t)",
    "operator": "t @ torch.ones(7, 7)",
    "key": "{}['k']",
    "from": "try: {}['k']\nexcept KeyError as e: raise Own('y') from e",
}
KEPT = {
    "kept": "KEPT.append(error)",
    "not kept": "pass",
    "named": "note(type(error).__name__)",
    "context": "KEPT.append(error.__context__)",
    "traceback": "KEPT.append(error.__traceback__)",
}
ENDED = {"none": "pass", "deleted": "del a", "bound again": "a = 1"}
WORLD = """
import weakref, torch
from flambeau_capture import disable
LOG, KEPT = [], []
class Own(Exception): pass
class Plain: pass
@disable
def made(name):
    found = Plain()
    weakref.finalize(found, LOG.append, name + " ended")
    return found
@disable
def track(t): weakref.finalize(t, LOG.append, "tensor ended")
@disable
def note(text): LOG.append(text)
def deep(t):
    b = made("b")
    u = t * 5
    raise Own("deep")
"""
#: who raises, and who handles it: the function that holds the object, its caller, one between
FRAMES = {
    "handled there": """
def helper(t, given):
    t = t * 2
    {held}
    note(1)
    try:
        {raised}
    except Exception as error:
        {kept}
        note(2)
    t = t + 1
    note(3)
    {ended}
    note(4)
    return t * 3
def f(t, given):
    t = t + 1
    c = made("c")
    t = helper(t, given)
""",
    "handled outside": """
def helper(t, given):
    t = t * 2
    {held}
    note(1)
    {ended}
    note(2)
    {raised}
    return t
def f(t, given):
    t = t + 1
    c = made("c")
    try:
        t = helper(t, given)
    except Exception as error:
        {kept}
        note(3)
""",
    "handled between": """
def inner(t, given):
    t = t * 2
    {held}
    note(1)
    {ended}
    note(2)
    {raised}
    return t
def helper(t, given):
    d = made("d")
    t = t * 7
    try:
        t = inner(t, given)
    except Exception as error:
        {kept}
        note(3)
    note(4)
    return t
def f(t, given):
    t = t + 1
    c = made("c")
    t = helper(t, given)
""",
}
REST = """
    note(5)
    t = t * 2
    del given
    note(6)
    KEPT.clear()
    note(7)
    return t + 1
"""


def filled(template, **parts):
    lines = []
    for line in template.splitlines():
        name = line.strip()[1:-1] if line.strip().startswith("{") else None
        depth = len(line) - len(line.lstrip())
        lines.append(textwrap.indent(parts[name], " " * depth) if name else line)
    return "\n".join(lines)


def lives(source, wrap):
    """What ends when, in two calls."""
    namespace = {"__name__": "program"}
    exec(compile(source, "<lives>", "exec"), namespace)
    fn, seen = wrap(namespace["f"]), []
    for _ in range(2):
        namespace["LOG"].clear()
        given = namespace["made"]("given")
        result = fn(torch.ones(3), given)
        del given
        seen.append((result.tolist(), [*namespace["LOG"]]))
    return seen


@pytest.mark.sweep(29)
@pytest.mark.parametrize(
    ("frames", "held", "raised", "kept", "ended"),
    itertools.product(FRAMES, HELD, RAISED, KEPT, ENDED),
)
def test_what_its_frames_hold_ends_as_in_eager(frames, held, raised, kept, ended, capture, backend):
    parts = {"held": HELD[held], "raised": RAISED[raised], "kept": KEPT[kept]}
    source = WORLD + filled(FRAMES[frames], **parts, ended=ENDED[ended]) + REST
    assert lives(source, capture) == lives(source, lambda fn: fn)
    assert len(backend)
