"""What a program sees of its own frames: recursion, exceptions, tracing, other hooks."""

from __future__ import annotations

import cProfile
import subprocess
import sys
import traceback
import warnings

import pytest
from flambeau_capture._native import SKIP, FrameCache, active, compiled
from frames import fails, keep_all, replacing

HERE = fails.__code__.co_filename


def test_nested_calls_and_recursion():
    def fact(n):
        return 1 if n <= 1 else n * fact(n - 1)

    cache = FrameCache(keep_all)
    assert compiled(fact, cache)(20) == fact(20)
    assert cache.counters()["hits"] == 19
    assert cache.counters()["conversions"] == 1


def test_a_call_that_is_left_alone_is_no_conversion():
    asked = []
    cache = FrameCache(lambda *frame: asked.append(frame))
    assert [compiled(lambda x: x + 1, cache)(1) for _ in range(3)] == [2, 2, 2]
    assert len(asked) == 3 and cache.counters()["conversions"] == 0


def test_runaway_recursion_is_an_exception():
    def f(n):
        return f(n + 1)

    cache = FrameCache(keep_all)
    with pytest.raises(RecursionError):
        compiled(f, cache)(0)
    assert compiled(lambda: 5, cache)() == 5


def test_recursion_depth_is_that_of_plain_python():
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(4000)
        assert compiled(depth, FrameCache(keep_all))(3500) == 3500
        assert compiled(depth, FrameCache(lambda *_: SKIP))(3500) == 3500
    finally:
        sys.setrecursionlimit(limit)


def test_recursion_without_limit_ends_in_an_exception():
    def forever(n):
        return forever(n + 1)

    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(10**6)
        for convert in (keep_all, lambda *_: SKIP):
            cache = FrameCache(convert)
            with pytest.raises(RecursionError):
                compiled(forever, cache)(0)
            assert cache.counters()["skipped_frames"] + cache.counters()["hits"] > 2000
    finally:
        sys.setrecursionlimit(limit)


def test_exceptions_and_their_lines():
    g = compiled(fails, replacing(1000, 2000))
    for _ in range(2):
        with pytest.raises(ValueError, match="2001") as info:
            g(1)
        frames = traceback.extract_tb(info.value.__traceback__)
        assert frames[-1].name == "fails"
        assert frames[-1].filename == HERE
        assert frames[-1].lineno == fails.__code__.co_firstlineno + 2
        assert len(frames) == 2
    assert active() is None


def test_getframe_sees_the_caller():
    def callee():
        frame = sys._getframe()
        return frame.f_code.co_name, frame.f_back.f_code.co_name, frame.f_lineno, 1000

    def caller():
        return callee(), 1000

    plain, replaced = caller(), compiled(caller, replacing(1000, 2000))()
    assert replaced == ((*plain[0][:3], 2000), 2000)
    assert plain[0][1] == "caller"


def test_deep_stacks_cross_chunks():
    # frames fill several chunks of the interpreter's data stack, so discarded frames begin chunks
    names = ", ".join(f"a{i}=0" for i in range(200))
    scope = {}
    exec(f"def deep(n, {names}):\n    return 0 if n == 0 else 1 + deep(n - 1)", scope)
    deep = scope["deep"]
    cache = FrameCache(keep_all)
    for _ in range(20):
        assert compiled(deep, cache)(300) == 300
    assert cache.counters()["hits"] > 5000


def test_tracing_sees_the_original():
    def f(x):
        return x + 1000

    cache = replacing(1000, 2000)
    g = compiled(f, cache)
    assert g(1) == 2001
    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_name == "f":
            events.append((event, frame.f_code is f.__code__))
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            result = g(1)
    finally:
        sys.settrace(before)
    if before is None:
        assert g(1) == 2001
        assert cache.counters()["traced_frames"] >= 1
    assert result == 1001
    assert events == [("call", True), ("line", True), ("return", True)]


def test_that_tracing_leaves_code_uncompiled_is_said_once():
    script = """if True:
        import sys, warnings
        from flambeau_capture._native import FrameCache, compiled
        g = compiled(lambda x: x, FrameCache(lambda *given: None))
        sys.settrace(lambda *given: None)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            g(1), g(2)
        sys.settrace(None)
        (one,) = told
        assert one.category is RuntimeWarning and "coverage" in str(one.message), one
    """
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("profiler", ["python", "native"])
def test_a_profiler_sees_what_runs(profiler):
    def f(x):
        return x + 1000

    cache = replacing(1000, 2000)
    g = compiled(f, cache)
    called = []

    def seen(frame, event, arg):
        if event == "call":
            called.append(frame.f_code.co_name)

    native = cProfile.Profile()
    before = sys.getprofile()
    if profiler == "native":
        native.enable()
    else:
        sys.setprofile(seen)
    try:
        results = [g(1), g(2)]
    finally:
        native.disable()
        sys.setprofile(before)
    assert results == [2001, 2002]
    assert cache.counters()["hits"] + cache.counters()["conversions"] == 2
    if profiler == "native":
        called = [each.code.co_name for each in native.getstats() if hasattr(each.code, "co_name")]
    assert "f" in called


def test_hook_is_gone_when_nothing_is_active():
    def leaf(x):
        return x

    def f():
        return leaf(1)

    cache = FrameCache(keep_all)
    compiled(f, cache)()
    met = len(cache.codes())
    f()
    assert len(cache.codes()) == met
    assert cache.counters()["hits"] == 0


def test_a_hook_that_was_there_before_still_sees_frames():
    internals = pytest.importorskip("_testinternalcapi")
    if not hasattr(internals, "set_eval_frame_record"):
        pytest.skip("this Python has no recording evaluation function")

    def skipped():
        return replaced() + 1

    def replaced():
        return 1000

    seen = []
    cache = replacing(1000, 2000)
    internals.set_eval_frame_record(seen)
    try:
        result = compiled(skipped, cache)()
        after = replaced()
    finally:
        internals.set_eval_frame_default()
    assert (result, after) == (2001, 1000)
    # each frame once: the skipped one, the code that ran in place of the other, the plain one
    assert [name for name in seen if name in ("skipped", "replaced")] == [
        "skipped",
        "replaced",
        "replaced",
    ]


def test_a_hook_installed_on_top_of_ours():
    internals = pytest.importorskip("_testinternalcapi")
    if not hasattr(internals, "set_eval_frame_record"):
        pytest.skip("this Python has no recording evaluation function")

    def inner():
        return 1000

    def outer():
        internals.set_eval_frame_record([])  # a hook that comes while ours is installed
        return inner()

    cache = replacing(1000, 2000)
    try:
        assert compiled(outer, cache)() == 1000  # the other hook passes nothing on to ours
        for _ in range(3):
            assert compiled(inner, cache)() == 2000
    finally:
        internals.set_eval_frame_default()
    assert inner() == 1000
    assert compiled(inner, cache)() == 2000
