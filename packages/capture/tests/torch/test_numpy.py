"""NumPy on arrays that stand for tensors: one graph with the dtypes, shapes and values of NumPy."""

import operator
import random
import warnings

import numpy as np
import pytest
import torch
from flambeau_capture.values.numpy.tables import OTHERS

BINARY = "add subtract multiply divide maximum minimum greater less_equal equal logical_and".split()
FLOATING = "exp log1p sqrt sin tanh floor rint isnan isfinite arctan2 hypot power remainder".split()
SHAPES = [
    lambda a: a.reshape(6),
    lambda a: a.reshape(-1, 2),
    lambda a: np.reshape(a, (3, 2)),
    lambda a: a.T,
    lambda a: a.transpose(1, 0).ravel(),
    lambda a: a.flatten(),
    lambda a: a[None, 1:, ..., -1],
    lambda a: a[:, ::2],
    lambda a: a[1],
    lambda a: a[[1, 0]],
    lambda a: a[:, 0][None].squeeze(),
    lambda a: np.expand_dims(a, (0, 2)),
    lambda a: np.concatenate([a, a], axis=1),
    lambda a: np.stack([a, a]),
    lambda a: np.swapaxes(a, 0, 1),
    lambda a: np.moveaxis(a, 0, -1),
    lambda a: np.tril(a),
    lambda a: np.broadcast_to(a, (4, 2, 3)),
    lambda a: a.astype(np.int32),
    lambda a: a.astype("float64") * 2,
    lambda a: np.zeros_like(a) + np.ones_like(a, dtype=np.float64) + np.full_like(a, 1),
    lambda a: np.where(a > 0, a, 0),
    lambda a: np.clip(a, -0.5, 1),
    lambda a: np.sort(a, axis=0),
    lambda a: np.dot(a, a.T),
    lambda a: a @ np.ones((3, 2)),
    lambda a: np.outer(a[0], a[1]),
    lambda a: np.einsum("ij,kj->ik", a, a),
    lambda a: a.copy() + np.arange(3),
    lambda a: np.asarray(a) * np.float32(2) + np.pi,
    lambda a: -a + abs(a) - (+a),
    lambda a: (a > 0) & ~(a > 1) | (a < -1),
    lambda a: [row * 2 for row in a],
]
REDUCTIONS = [
    lambda a: a.sum(),
    lambda a: a.sum(axis=1, keepdims=True),
    lambda a: np.mean(a, axis=(0, 1)),
    lambda a: a.max(0),
    lambda a: np.min(a),
    lambda a: a.std(),
    lambda a: np.var(a, axis=0, ddof=1),
    lambda a: a.prod(axis=1),
    lambda a: a.argmax(),
    lambda a: np.argmin(a, axis=1),
    lambda a: a.cumsum(),
    lambda a: np.cumprod(a, axis=0),
    lambda a: np.any(a > 1, axis=0),
    lambda a: (a > -9).all(),
]


def data(dtype):
    values = torch.tensor([[1.5, -2.25, 0.0], [3.0, 0.5, 2.0]])
    return values.to(dtype)


def alike(ours, theirs):
    assert type(ours) is type(theirs), (ours, theirs)
    if isinstance(ours, (tuple, list)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs):
            alike(one, other)
    elif isinstance(ours, torch.Tensor):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    else:
        assert ours.dtype == theirs.dtype and np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.fixture
def agree(capture, backend):
    def run(fn, *makers, graphs=1):
        compiled = capture(fn)
        for _ in range(2):
            with np.errstate(all="ignore"):
                alike(compiled(*(make() for make in makers)), fn(*(make() for make in makers)))
        assert len(backend) == graphs, f"{len(backend)} graphs"

    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_promotion_is_numpys(agree, name, dtype):
    fn = getattr(np, name)
    if name == "subtract" and dtype is torch.bool:
        pytest.skip("NumPy refuses it")
    agree(lambda t, u: (fn(t.numpy(), u.numpy()), fn(t.numpy(), 2)), lambda: data(dtype),
          lambda: data(torch.float64 if dtype is torch.float32 else torch.int32))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FLOATING)
def test_universal_functions(agree, name, dtype):
    fn = getattr(np, name)
    if fn.nin == 1:
        agree(lambda t: fn(t.numpy()), lambda: data(dtype))
    else:
        agree(lambda t: (fn(t.numpy(), 2), fn(t.numpy(), np.abs(t.numpy()))), lambda: data(dtype))


@pytest.mark.parametrize("place", range(len(SHAPES)))
def test_shapes_subscripts_and_products(agree, place):
    fn = SHAPES[place]
    agree(lambda t: fn(t.numpy()), lambda: data(torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
@pytest.mark.parametrize("place", range(len(REDUCTIONS)))
def test_reductions(agree, place, dtype):
    fn = REDUCTIONS[place]
    agree(lambda t: fn(t.numpy()), lambda: data(dtype))


def test_there_and_back(agree):
    def fn(t):
        a = t.numpy() * 2
        total = torch.as_tensor(a.sum())
        return torch.from_numpy(a), torch.tensor(a, dtype=torch.float64), total, torch.tensor(a[0])

    agree(fn, lambda: data(torch.float32))


def test_memory_is_shared_where_numpy_shares_it(capture, backend):
    def fn(t):
        a = t.numpy()
        view = a[1:]
        view += 1
        a[0, 0] = 7
        other = a.copy()
        other *= 10
        a[a < 0] = -5
        return torch.from_numpy(view), torch.from_numpy(other)

    ours, theirs = data(torch.float32), data(torch.float32)
    alike(capture(fn)(ours), fn(theirs))
    assert torch.equal(ours, theirs) and len(backend) == 1


def test_known_arrays_are_new_ones_for_every_call(capture, backend):
    def fn(t):
        table = np.arange(3.0)
        table += 1
        shape = np.array(t.shape)
        return t + torch.from_numpy(table), table, int(shape.prod()), np.sqrt(16.0), shape

    compiled = capture(fn)
    first, second = compiled(torch.ones(3)), compiled(torch.ones(3))
    alike(first[0], fn(torch.ones(3))[0])
    assert first[1] is not second[1] and first[4] is not second[4]
    first[1][:] = 0
    first[4][:] = 0
    third = compiled(torch.ones(3))
    assert third[1].tolist() == [1.0, 2.0, 3.0] and third[4].tolist() == [3]
    assert third[2:4] == (3, 4.0) and type(third[3]) is np.float64
    assert len(backend) == 1


def test_arrays_of_the_program(capture, backend):
    def fn(a, t):
        a[0] += 1
        return torch.from_numpy(a) * t, a.shape, a.dtype == np.float32, isinstance(a, np.ndarray)

    compiled = capture(fn)
    ours, theirs = np.ones(3, dtype=np.float32), np.ones(3, dtype=np.float32)
    for _ in range(2):
        got, expected = compiled(ours, torch.ones(3)), fn(theirs, torch.ones(3))
        alike(got[0], expected[0])
        assert got[1:] == expected[1:] and ours.tolist() == theirs.tolist()
    assert len(backend) == 1
    compiled(np.ones(3), torch.ones(3))
    compiled(np.ones((2, 3), dtype=np.float32), torch.ones(3))
    assert len(backend) == 3  # another dtype, another shape


@pytest.mark.parametrize(
    "fn",
    [
        lambda a: a[a > 0],
        lambda a: np.median(a),
        lambda a: float(a.sum()),
        lambda a: a[::-1],
        lambda a: a // np.arange(3),
        lambda a: np.unique(a),
        lambda a: a.tolist(),
    ],
)
def test_what_torch_does_otherwise_is_left_to_numpy(capture, fn):
    with np.errstate(all="ignore"):
        ours = capture(lambda t: (fn(t.numpy()), t + 1))(data(torch.int64))
        theirs = fn(data(torch.int64).numpy())
    np.testing.assert_array_equal(ours[0], theirs)
    assert torch.equal(ours[1], data(torch.int64) + 1)


def test_scalars_with_tensors(agree):
    agree(
        lambda t: (t * np.float32(2), t / np.sqrt(16.0), np.float64(3) * t, t + np.int64(2)),
        lambda: data(torch.float32),
    )


#: every universal function, and every function that has a row in the tables
DISPATCHED = sorted(
    {name for name in dir(np) if isinstance(getattr(np, name), np.ufunc)}
    | {name for name in OTHERS if hasattr(np, name)}
)
GIVEN = {
    "floats": lambda: (torch.tensor([1.0, 2.0]),),
    "integers": lambda: (torch.tensor([[1, 2], [3, 4]]),),
    "booleans": lambda: (torch.tensor([True, False]),),
    "no dimensions": lambda: (torch.tensor(2.0),),
    "half precision": lambda: (torch.tensor([1.0], dtype=torch.bfloat16),),
    "requires grad": lambda: (torch.tensor([1.0, 2.0], requires_grad=True),),
    "two": lambda: (torch.tensor([1.0, 2.0]), torch.tensor([0.5, 3.0])),
    "three": lambda: (torch.tensor([1, 0]), torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])),
    "and a number": lambda: (torch.tensor([1.0, 2.0]), 1),
    "after a number": lambda: (1, torch.tensor([1.0, 2.0])),
    "and numbers": lambda: (torch.tensor([[0.5, 2.0]]), 0, 1),
    "and an array": lambda: (torch.tensor([1.0, 2.0]), np.array([2.0, 1.0])),
    "after an array": lambda: (np.array([2.0, 1.0]), torch.tensor([1.0, 2.0])),
    "a list": lambda: ([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])],),
}  # fmt: skip


@pytest.mark.sweep(6)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("given", GIVEN)
def test_of_tensors_numpy_gives_what_the_tensors_say(capture, given):
    def told(run, fn):
        try:
            return run(*GIVEN[given]())
        except Exception as error:
            return type(error), str(error)

    for name in DISPATCHED:
        fn = getattr(np, name)

        def program(*args, fn=fn):
            return fn(*args)

        theirs, ours = told(program, fn), told(capture(program), fn)
        if isinstance(theirs, tuple) and isinstance(theirs[0], type):
            assert ours == theirs, name
        else:
            alike(ours, theirs)


def test_arrays_made_of_tensors_stay_in_the_graph(agree):
    def fn(t):
        return np.concatenate([t, t]), np.where(t > 1, t, 0), np.asarray(t) + 1

    agree(fn, lambda: torch.tensor([1.0, 2.0]))


def test_what_numpy_warns_of_tensors_is_warned(capture):
    def told(run):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            alike(run(torch.ones(2)), np.sin(torch.ones(2)))
        return [(each.category, str(each.message)) for each in seen]

    assert told(capture(lambda t: np.sin(t))) == told(lambda t: np.sin(t))


ODD = [
    "fn(a)", "fn(t)", "fn(a=a)", "fn(a, 0)", "fn(a, axis=t)", "fn([t, t])", "fn([a, [1.0]])",
    "fn(2)", "fn(None)", "fn('a', a)", "fn()", "fn(a, a)", "fn(a, a, None)", "fn(t, a)",
    "fn(a, axis=None)", "fn(a, out=None)", "fn([[1, 2], [3, 4]])", "fn((a, t), 0)", "fn(a, o)",
    "fn(a, 1, 0)", "fn(a, fill_value=2)", "fn(a > 0, a, 0)",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*OTHERS, "add", "sin"])
def test_arguments_that_no_row_is_written_for_are_numpys(name, capture):
    """Each ends by a break that a row has named, or in what NumPy answers."""
    fn = getattr(np, name)
    for odd in random.Random(name).sample(ODD, 8):
        space = {"fn": fn, "o": object()}
        exec(f"def f(t):\n    a = t.numpy()\n    return {odd}", space)
        call, ends = space["f"], []
        for by in (call, capture(call)):
            try:
                ends.append(by(data(torch.float32)))
            except Exception as error:
                ends.append(type(error))
        kind = getattr(getattr(ends[0], "dtype", None), "kind", "f")
        if isinstance(ends[0], type) or not hasattr(ends[0], "dtype") or kind not in "biuf":
            assert str(ends[0]) == str(ends[1]), odd
        else:
            alike(ends[1], ends[0])


ERRORS = {  # what NumPy's arithmetic meets: its operation, by kind of error
    "divide": lambda a: 1 / (a * 0),
    "invalid": lambda a: np.sqrt(a * 0 - 1),
    "over": lambda a: np.exp(a * 0 + 1000),
    "a reduction": lambda a: np.var(1 / (a * 0)),
}


def _raising(operation, a, seen):
    old = np.seterr(all="raise")
    try:
        return operation(a)
    except FloatingPointError as error:
        return str(error)
    finally:
        np.seterr(**old)


def _calling(operation, a, seen):
    with np.errstate(all="call", call=lambda kind, flag: seen.append(kind)):
        return operation(a)


def _as_errors(operation, a, seen):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return operation(a)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("watched", [_raising, _calling, _as_errors])
@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_arithmetic_that_are_more_than_warnings(capture, name, watched):
    def program(x, seen):
        return watched(ERRORS[name], x.numpy(), seen)

    def observed(fn):
        seen = []
        try:
            found = fn(torch.ones(3), seen)
        except (FloatingPointError, RuntimeWarning) as error:
            found = type(error), str(error)
        return str(found), seen

    ours, expected = capture(program), observed(program)
    assert [observed(ours) for _ in range(2)] == [expected] * 2


def test_errors_of_arithmetic_are_raised_where_the_mode_changes(capture):
    def program(x):
        return 1 / (x.numpy() * 0)

    ours = capture(program)
    with np.errstate(all="ignore"):
        assert str(ours(torch.ones(2))) == "[inf inf]"
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        ours(torch.ones(2))


def test_what_numpy_knows_warns_as_often_as_eager(capture):
    def program(x):
        return np.log(np.array([0.0, -1.0])), x * 2

    def said(fn):
        with warnings.catch_warnings(record=True) as all_said:
            warnings.simplefilter("always")
            fn(torch.ones(2))
        return [str(each.message) for each in all_said]

    ours = capture(program)
    assert [said(ours) for _ in range(3)] == [said(program)] * 3


OF_ITS_ARGUMENT = {  # what NumPy gives for an argument: that itself, a view of it, or a copy
    "sort": lambda a: a.sort(),
    "sort(axis)": lambda a: a.sort(axis=0),
    "np.sort": lambda a: np.sort(a, 0),
    "flip": lambda a: np.flip(a, 0),
    "astype": lambda a: a.astype(np.float32, copy=False),
    "astype of another": lambda a: a.astype(np.float64, copy=False),
    "squeeze": lambda a: a.squeeze(),
    "atleast_2d": lambda a: np.atleast_2d(a),
    "contiguous": lambda a: np.ascontiguousarray(a),
    "contiguous of T": lambda a: np.ascontiguousarray(a.T),
    "array": lambda a: np.array(a),
    "ravel": lambda a: a.ravel(),
    "ravel of T": lambda a: a.T.ravel(),
    "flatten": lambda a: a.flatten(),
    "moveaxis": lambda a: np.moveaxis(a, 0, 1),
    "einsum": lambda a: np.einsum("ij->ji", a),
    "tril": lambda a: np.tril(a),
}


def rewritten(a, result):
    if result is not None:
        result[...] = result + 10


WRITES = {
    "result": rewritten,
    "argument": lambda a, result: a.__setitem__(0, 20.0),
    "none": lambda a, result: None,
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", OF_ITS_ARGUMENT)
def test_a_result_shares_what_numpys_does(capture, name, write):
    def fn(a):
        result = OF_ITS_ARGUMENT[name](a)
        WRITES[write](a, result)
        return result, a * 1, result is a

    found = []
    for call in (fn, capture(fn)):
        given = data(torch.float32).numpy().copy()
        found += [[*call(given), given]]
    for ours, theirs in zip(*found):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("divisor", [3.0, -3.0, np.inf, -np.inf, 0.0])
@pytest.mark.parametrize("name", ["remainder", "mod", "fmod", "floor_divide"])
def test_zeros_of_quotients_have_numpys_signs(capture, name, divisor):
    fn = getattr(np, name)
    given = np.array([-6.0, -4, -3, -0.0, 0.0, 3, 4, 6])
    with np.errstate(all="ignore"):
        ours, theirs = (
            run(given) for run in (capture(lambda a: fn(a, divisor)), lambda a: fn(a, divisor))
        )
    np.testing.assert_array_equal(ours, theirs)
    shown = ~np.isnan(theirs)
    np.testing.assert_array_equal(np.signbit(ours)[shown], np.signbit(theirs)[shown])


UNNOTICED = {
    "an argument's tensor": lambda x, a: (torch.from_numpy(a), a),
    "a new array's tensor": lambda x, a: (torch.as_tensor(b := a + 1), b),
    "a tensor's array": lambda x, a: (x.detach(), x.detach().numpy()),
    "a result's array": lambda x, a: ((y := x.detach() * 2), y.numpy()),
    "an array of a view": lambda x, a: ((y := x.detach() * 2)[1:], y.numpy()),
}
NUMPY_WRITES = {
    "an item": lambda a: a.__setitem__(0, 7.0),
    "in place": lambda a: operator.iadd(a, 1),
    "out": lambda a: np.multiply(a, 2, out=a),
    "sorted": lambda a: a[::-1].sort(),
}


@pytest.mark.parametrize("seen", UNNOTICED)
@pytest.mark.parametrize("write", NUMPY_WRITES)
def test_autograd_does_not_learn_of_what_numpy_writes(capture, backend, seen, write):
    def f(x, a):
        tensor, array = UNNOTICED[seen](x, a)
        y = x[-len(tensor) :].sin() * tensor
        NUMPY_WRITES[write](array)
        return y, array

    results = []
    for run in (f, capture(f)):
        x = torch.arange(3.0, dtype=torch.float64).requires_grad_()
        y, array = run(x, np.arange(3.0) + 2)
        y.sum().backward()
        results.append((y.tolist(), array.tolist(), x.grad.tolist()))
    assert results[0] == results[1]
    assert backend.graphs
