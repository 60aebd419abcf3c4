"""Numbers of operators that are another in every call: every schema of torch's with a `Scalar` or a
`float` is called with one, and comes to rest: open, or with its operator left to eager by name."""

import warnings

import pytest
import torch
from flambeau_capture import compile as capture
from flambeau_capture.api import compiler_of

VALUES = (0.3, 0.4, 0.6, 0.7, 0.55, 0.45)
SQUARE = torch.linspace(0.1, 0.9, 16).reshape(4, 4)
PARTS = 4
NUMBERS = ("number", "float", "Optional[float]")
#: what a schema names a type, and what is given for it
GIVEN = {
    "Tensor": SQUARE, "Optional[Tensor]": None, "List[Tensor]": [SQUARE, SQUARE + 1], "int": 1,
    "SymInt": 1, "bool": False, "List[int]": [4, 4], "List[SymInt]": [4, 4], "str": "none",
    "number": 1.5, "float": 0.25, "Device": torch.device("cpu"),
}  # fmt: skip
#: what crashes where it has no running statistics, or no cells
LEFT_OUT = {"native_batch_norm", "native_batch_norm_backward", "batch_norm_elemt", "lstm", "gru"}


def overloads():
    """Operators that take a number, and the place of the first."""
    for packet in sorted(set(dir(torch.ops.aten)) - LEFT_OUT):
        found = getattr(torch.ops.aten, packet)
        if (
            not isinstance(found, torch._ops.OpOverloadPacket)
            or packet[0] == "_"
            or packet[-1] == "_"
        ):
            continue  # torch's own, and what writes to its argument as its other form computes
        for name in sorted(found.overloads()):
            schema = getattr(found, name)._schema
            types = [str(argument.type) for argument in schema.arguments]
            takes = [at for at, kind in enumerate(types) if kind in NUMBERS]
            of_tensors = "Tensor" in types and any(str(r.type) == "Tensor" for r in schema.returns)
            if takes and of_tensors and not any(each.is_out for each in schema.arguments):
                yield getattr(found, name), takes[0]


def arguments(overload):
    """Of every other argument its default, or what is given for its type; None: there is none."""
    found = {}
    for argument in overload._schema.arguments:
        kind = str(argument.type)
        if argument.has_default_value():
            found[argument.name] = argument.default_value
        elif kind in GIVEN:
            found[argument.name] = GIVEN[kind]
        elif kind.startswith("Optional"):
            found[argument.name] = None
        else:
            return None
    return found


def called(overload, place):
    """A function of that number, or None where eager takes none of these arguments."""
    given = arguments(overload)
    if given is None:
        return None
    names = [argument.name for argument in overload._schema.arguments]

    def fn(v):
        passed = [v if at == place else fresh(given[name]) for at, name in enumerate(names)]
        keywords = {
            n: a for n, a, s in zip(names, passed, overload._schema.arguments) if s.kwarg_only
        }
        return overload(*passed[: len(names) - len(keywords)], **keywords)

    return fn


def fresh(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    return [fresh(each) for each in value] if isinstance(value, list) else value


def answer(fn, v):
    torch.manual_seed(0)
    try:
        return fn(v)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        return type(error)


def equal(one, other):
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one is other or one == other or (one != one and other != other)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator_of_a_number_comes_to_rest(part):
    covered, wrong = 0, []
    for at, (overload, place) in enumerate(overloads()):
        fn = called(overload, place) if at % PARTS == part else None
        if fn is None or any(isinstance(answer(fn, v), type) for v in VALUES):
            continue
        covered += 1
        compiled = capture(fn, backend="eager")
        made = []
        for v in VALUES:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if not equal(answer(compiled, v), answer(fn, v)):
                    wrong.append((str(overload), v))
            made.append(len(compiler_of(compiled).records.guards))
        breaks = {report.reason.id for report in compiler_of(compiled).records.breaks}
        if made[-1] > made[0] + 1 and "FB0028" not in breaks:
            wrong.append((str(overload), made))
        if len(set(made[3:])) > 1:
            wrong.append((str(overload), made, "goes on"))
    assert covered > 15
    assert not wrong


def test_an_operator_of_two_numbers_has_a_graph_for_each():
    compiled = capture(torch.nn.functional.layer_norm, backend="eager")
    for eps in (1e-5, 1e-6) * 4:
        compiled(SQUARE, (4,), None, None, eps)
    assert not compiler_of(compiled).records.breaks


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("learns", (True, False))
@pytest.mark.parametrize("norm", ("batch_norm", "instance_norm"))
def test_running_statistics_take_any_momentum(norm, learns, dtype):
    fn = getattr(torch.nn.functional, norm)

    def average(x, mean, var, weight, count):
        return fn(x, mean, var, weight, None, learns, 1.0 / float(count.add_(1)), 1e-4)

    compiled = capture(average, backend="eager")
    kept = torch.float64 if dtype == torch.float64 else torch.float32
    first = [torch.zeros(3), torch.ones(3), torch.rand(3) + 1]
    state = [[each.to(kept, copy=True) for each in first] + [torch.tensor(0)] for _ in range(2)]
    for _ in range(5):
        x = torch.randn(4, 3, 5, dtype=dtype)
        one, other = (x.clone().requires_grad_() for _ in range(2))
        made, eager = compiled(one, *state[1]), average(other, *state[0])
        weights = torch.randn_like(made)
        (made * weights).sum().backward()
        (eager * weights).sum().backward()
        torch.testing.assert_close((made, one.grad, *state[1]), (eager, other.grad, *state[0]))
    records = compiler_of(compiled).records
    assert not records.breaks and len(records.guards) <= 2


def test_the_break_names_the_operator_the_number_and_the_edit():
    def fn(x, p):
        return torch.nn.functional.dropout(x * 2, p) + 1

    compiled = capture(fn, backend="eager")
    for p in (0.1, 0.2, 0.3, 0.4, 0.5, 0.25):
        assert equal(answer(lambda v: compiled(SQUARE, v), p), answer(lambda v: fn(SQUARE, v), p))
    (report,) = compiler_of(compiled).records.breaks
    assert report.reason.id == "FB0028"
    assert report.what == "dropout needs p as a constant, which was 0.2 and is 0.3"
    assert "few different numbers" in report.reason.hint


def test_numbers_that_a_backend_leaves_open_nowhere_end_at_the_operator_that_takes_them():
    def refusing(module, inputs):
        if any(isinstance(one, float) for one in inputs):
            raise RuntimeError("numbers are constants")
        return module.forward

    def fn(x, v):
        return (x + 1) * v + x

    compiled = capture(fn, backend=refusing)
    for v in VALUES:
        assert torch.equal(compiled(SQUARE, v), fn(SQUARE, v))
    assert "FB0028" in {report.reason.id for report in compiler_of(compiled).records.breaks}
    before = len(compiler_of(compiled).records.guards)
    for v in (0.11, 0.12, 0.13):
        assert torch.equal(compiled(SQUARE, v), fn(SQUARE, v))
    assert len(compiler_of(compiled).records.guards) == before
