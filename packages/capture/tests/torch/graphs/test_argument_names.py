"""Functions of torch called by name, with too little, and with names that Python cannot write: what
comes of it is eager's, and capture has no fault. Generated: all that capture handles itself, and
the operators of torch's namespaces."""

import inspect
import warnings

import pytest
import torch
from flambeau_capture import optimize
from flambeau_capture.api import compiler_of
from flambeau_capture.values.functions.call_rules import RULES, Action

CALLS = {
    "nothing": ((), {}),
    "a name that is not there": ((), {"nobody": 1}),
    "a keyword of Python": ((), {"from": 1}),
    "no name at all": ((), {"no name": 1}),
    "a tensor and a keyword": (("t",), {"class": 1}),
    "a tensor, too much": (("t",) * 12, {}),
}
SPACES = [torch, torch.nn.functional, torch.linalg, torch.fft, torch.special, torch.Tensor]
EVERY = 40  # of the functions that capture records without a rule of its own


def callables():
    handled = [fn for fn, rule in RULES.items() if rule.handler is not None and _of_torch(fn)]
    others = []
    for space in SPACES:
        for name in sorted(set(dir(space))):
            fn = getattr(space, name, None)
            if not name.startswith("_") and inspect.isroutine(fn) and _of_torch(fn):
                others.append(fn)
    broken = {fn for fn, rule in RULES.items() if rule.action is Action.BREAK}
    return [fn for fn in [*handled, *others[::EVERY]] if fn not in broken]


def _of_torch(fn):
    owner = getattr(fn, "__objclass__", None)
    module = getattr(fn, "__module__", None) or getattr(owner, "__module__", "") or ""
    return str(module).startswith("torch")


def run(fn, args, kwargs):
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return type(error)


@pytest.mark.sweep(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", CALLS)
def test_calls_that_are_refused(how):
    args, kwargs = CALLS[how]
    args = [torch.ones(2) if each == "t" else each for each in args]
    different = []
    for fn in callables():
        want = run(fn, args, kwargs)
        if want is not TypeError:
            continue  # it does something: called with what it takes elsewhere

        def call(fn=fn):
            return fn(*args, **kwargs)

        compiled = optimize("eager")(call)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = run(compiled, (), {})
        if got is not want or compiler_of(compiled).records.faults:
            different.append((fn, got, compiler_of(compiled).records.faults))
    assert not different


# each by its schema's names, first arguments included, in any order
BY_NAME = [
    (torch.tensor, {"data": [1.0, 2.0]}),
    (torch.tensor, {"dtype": torch.int64, "data": [1, 2]}),
    (torch.as_tensor, {"data": [1.0, 2.0]}),
    (torch.asarray, {"obj": [1.0, 2.0]}),
    (torch.full, {"fill_value": 2.0, "size": (2, 3)}),
    (torch.where, {"other": torch.ones(2), "input": torch.ones(2), "condition": torch.eye(2) > 0}),
    (torch.broadcast_shapes, {}),
    (torch.stack, {"tensors": [torch.ones(2)], "dim": 1}),
    (torch.cat, {"dim": 0, "tensors": [torch.ones(2)]}),
    (torch.numel, {"input": torch.ones(2)}),
    (torch.is_floating_point, {"input": torch.ones(2)}),
    (torch.einsum, {"equation": "i,i->i", "operands": [torch.ones(2), torch.ones(2)]}),
    (torch.nn.functional.linear, {"weight": torch.ones(3, 2), "input": torch.ones(2)}),
    (torch.repeat_interleave, {"repeats": 2, "input": torch.ones(2)}),
    (torch.cond, {"pred": True, "true_fn": torch.sin, "false_fn": torch.cos,
                  "operands": [torch.ones(2)]}),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(BY_NAME)))
def test_every_argument_by_its_name(place, capture):
    fn, given = BY_NAME[place]
    want = run(fn, (), given)
    got = run(capture(lambda: fn(**given)), (), {})
    if isinstance(want, torch.Tensor):
        assert torch.equal(got, want) and got.dtype == want.dtype
    else:
        assert got == want


@pytest.mark.parametrize("given", [{"from": -10, "to": 10}, {"to": 5, "from": 1}])
@pytest.mark.parametrize("name", ["random_", "uniform_"])
def test_a_name_that_is_a_word_of_python(name, given, capture, backend):
    compiled = capture(lambda t, given: getattr(t, name)(**given) + 1, nopython=True)
    torch.manual_seed(0)
    want = getattr(torch.ones(20), name)(**given) + 1
    torch.manual_seed(0)
    assert torch.equal(compiled(torch.ones(20), given), want) and len(backend) == 1
    assert backend.graphs[0](torch.ones(20))[0].shape == want.shape


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.uint8, torch.bool])
@pytest.mark.parametrize("value", [0, 1, 5])
def test_a_condition_of_any_dtype(dtype, value, capture):
    fn = lambda p, x: torch.cond(p, torch.sin, torch.cos, [x])  # noqa: E731
    x, p = torch.ones(2), torch.tensor(value).to(dtype)
    assert torch.equal(capture(fn)(p, x), x.sin() if value else x.cos())


def test_under_a_trace_of_torch(capture):
    traced = torch.jit.trace(capture(lambda x: x.sin() + 1, dynamic=True), torch.ones(3))
    assert torch.equal(traced(torch.zeros(5)), torch.ones(5))
