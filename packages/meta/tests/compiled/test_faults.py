"""A failure inside any stage is a fault on record, apart from what a stage refuses; it is an error
with `fullgraph=True` and where the environment asks for it."""

import flambeau_aot
import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_capture.interp.tracer import SymbolicTracer

import flambeau
from flambeau.backends.fallback import is_refusal
from flambeau.errors import BackendMissing, NotForThisBackend, StageError

BUGS = [IndexError, TypeError, KeyError, AttributeError, AssertionError, ValueError, RuntimeError]


def fn(t):
    return (t.sin() + 1).sum()


def failing(error):
    def fail(*args, **kwargs):
        raise error("inside")

    return fail


# where each stage can be made to fail: stage, owner, name
PLACES = {
    "capture": (SymbolicTracer, "call"),
    "prepare": (flambeau_inductor, "prepare"),
    "aot": (flambeau_aot, "compile"),
    "inductor": (flambeau_inductor, "compile"),
}


pytestmark = pytest.mark.usefixtures("falls_back")


@pytest.fixture
def broken(monkeypatch):
    def break_stage(stage, error):
        owner, name = PLACES[stage]
        monkeypatch.setattr(owner, name, failing(error))

    return break_stage


@pytest.mark.parametrize("stage", PLACES)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_stage_says_that_it_failed(stage, dynamic, broken):
    broken(stage, IndexError)
    compiled = flambeau.compile(fn, dynamic=dynamic)
    x = torch.randn(3, 7)
    assert torch.equal(compiled(x), fn(x))
    report = flambeau.report(compiled)
    fault = report.faults[-1]
    assert (fault.stage, fault.kind) == (stage, "IndexError")
    assert "inside" in fault.message and "t.sin()" in fault.user_line
    assert "IndexError: inside" in str(report)
    assert report.to_dict()["internal_errors"]


@pytest.mark.parametrize("stage", PLACES)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("how", ["fullgraph", "environment", "option"])
def test_it_is_an_error_where_that_is_asked_for(stage, dynamic, how, broken, monkeypatch):
    broken(stage, TypeError)
    if how == "environment":
        monkeypatch.setenv("FLAMBEAU_FAULTS", "raise")
    options = {"raise_internal_errors": True} if how == "option" else None
    strict = how == "fullgraph"
    compiled = flambeau.compile(fn, dynamic=dynamic, fullgraph=strict, options=options)
    with pytest.raises((TypeError, RuntimeError), match="inside"):
        compiled(torch.randn(3, 7))
    assert flambeau.report(compiled).faults


@pytest.mark.parametrize("stage", [stage for stage in PLACES if stage != "capture"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_refusal_is_no_fault(stage, broken):
    broken(stage, flambeau_aot.Unsupported)
    compiled = flambeau.compile(fn)
    x = torch.randn(3)
    assert torch.equal(compiled(x), fn(x))
    report = flambeau.report(compiled)
    assert (len(report.fallbacks), report.faults) == (1, ())


def test_what_is_a_refusal():
    stages = (flambeau_aot, flambeau_prims, flambeau_inductor)
    own = {
        kind
        for stage in stages
        for name in stage.__all__
        if isinstance(kind := getattr(stage, name), type)
        and issubclass(kind, Exception)
        and not issubclass(kind, Warning)
    }
    faults = {flambeau_aot.CompilerContractError, flambeau_inductor.CompilerFailed}
    refused = {kind for kind in own if is_refusal(kind("why"))}
    assert own - refused == faults | {
        kind for kind in own if kind.__name__ in ("DialectError", "CannotLoad")
    }
    assert all(is_refusal(kind("a", "b")) for kind in (BackendMissing, NotForThisBackend))
    assert not any(is_refusal(kind("why")) for kind in BUGS)
    assert not is_refusal(RecursionError("why"))


@pytest.mark.parametrize("kind", BUGS)
def test_tracing_is_judged_by_its_cause(kind):
    error = flambeau_aot.TraceError("why")
    error.__cause__ = kind("inside")
    assert is_refusal(error) == issubclass(kind, RuntimeError | ValueError)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_backends_of_the_users_own():
    compiled = flambeau.compile(fn, backend=failing(KeyError))
    x = torch.randn(3)
    assert torch.equal(compiled(x), fn(x))
    (text,) = flambeau.report(compiled).backend_errors
    assert "KeyError" in text and "t.sin()" in str(flambeau.report(compiled))
    with pytest.raises(RuntimeError, match="KeyError"):
        flambeau.compile(fn, backend=failing(KeyError), fullgraph=True)(x)


@pytest.mark.parametrize("kind", BUGS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_calls_of_what_a_backend_of_the_users_own_gives(kind):
    compiled = flambeau.compile(fn, backend=lambda gm, inputs: failing(kind))
    x = torch.randn(3)
    assert torch.equal(compiled(x), fn(x)) and torch.equal(compiled(x), fn(x))
    report = flambeau.report(compiled)
    (text,) = report.backend_errors
    assert kind.__name__ in text and "in fn" in text and not report.faults


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_race_keeps_what_a_candidate_failed_of(broken):
    broken("inductor", IndexError)
    compiled = flambeau.compile(fn, backend="autotune")
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), fn(x))
    assert [fault.kind for fault in flambeau.report(compiled).faults] == ["IndexError"]


def test_a_disk_that_fails_is_shown():
    from flambeau.events.records import GraphRecord, RecordCollector

    recorder = RecordCollector()
    recorder.add(GraphRecord("g", "inference", 1, cache_faults=("no room",)))
    assert "disk cache: no room" in str(recorder.report())


def test_an_error_of_a_stage_is_told_once(broken):
    broken("aot", IndexError)
    compiled = flambeau.compile(fn, fullgraph=True)
    with pytest.raises(RuntimeError) as raised:
        compiled(torch.randn(3))
    cause = raised.value.__cause__
    assert isinstance(cause, StageError) and cause.failure.stage == "aot"
    assert len(flambeau.report(compiled).faults) == 1


def _of_dtype(dtype):
    return lambda x: x.index_fill(0, torch.zeros(1, dtype=dtype), 7.0)


ABSENT = [
    name for name in ("cuda", "xpu", "mps") if not getattr(torch, name, torch.cuda).is_available()
]
FACTORIES = (torch.ones, torch.empty)
#: what torch's own code and kernels raise, of every class that they raise
RAISING = {
    **{
        f"{make.__name__} on {device}": lambda x, m=make, d=device: x + m(3, device=d)
        for make in FACTORIES
        for device in ABSENT
    },
    **{f"index of {dtype}": _of_dtype(dtype) for dtype in (torch.int32, torch.float32)},
    "sizes": lambda x: x + torch.ones(7),
    "dimension": lambda x: x.sum(5),
    "matrix": lambda x: x @ torch.ones(7, 2),
    "dtype": lambda x: x.long() @ x,
    "argument": lambda x: torch.nn.functional.interpolate(x[None, None], mode="nosuch"),
    "no inverse": lambda x: torch.linalg.inv(torch.zeros(3, 3)) + x.sum(),
}


def _raised(fn, *args):
    with pytest.raises(Exception) as raised:
        fn(*args)
    return type(raised.value), str(raised.value)


@pytest.mark.parametrize("how", ["default", "fullgraph", "raise"])
@pytest.mark.parametrize("name", RAISING)
@pytest.mark.filterwarnings("error::flambeau.FlambeauWarning")
def test_what_eager_raises_too_is_the_programs_own_error(name, how, monkeypatch):
    if how == "raise":
        monkeypatch.setenv("FLAMBEAU_FAULTS", "raise")
    x = torch.randn(3, 3)
    compiled = flambeau.compile(RAISING[name], fullgraph=how == "fullgraph")
    kind, text = _raised(RAISING[name], x)
    given, said = _raised(compiled, x)
    assert (given, said) == (kind, text)
    report = flambeau.report(compiled)
    assert (report.faults, report.fallbacks) == ((), ())
    for error in report.program_errors:
        assert f"the program raises: {error}" in str(report)


def test_an_error_that_eager_does_not_raise_stays_a_fault(broken):
    """A failure is a candidate until the first call: before, and after a call that does not raise
    the same, it counts."""
    broken("inductor", AssertionError)
    compiled = flambeau.compile(lambda x: x + torch.ones(x.shape[0]))
    with pytest.warns(flambeau.FlambeauWarning, match="inside"):
        compiled(torch.randn(3))
    (fault,) = flambeau.report(compiled).faults
    assert fault.kind == "AssertionError" and not flambeau.report(compiled).program_errors
