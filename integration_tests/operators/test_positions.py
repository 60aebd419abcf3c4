"""Positions in index tensors: inside, negative, outside, of any dtype, by every operation that
takes them. What eager gives is given, and what it refuses is refused by an error of its class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.program import Program
from flambeau_prims.conformance import Decomposing
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode

import flambeau

pytestmark = pytest.mark.filterwarnings("ignore")
ROWS, WIDTH = 4, 3
Operation = Callable[[Tensor, Tensor, Tensor], Any]
"""Of a matrix, positions of its rows (a vector or one), and a row for each position."""


def column(x: Tensor) -> Tensor:
    """A vector (a number, of one row)."""
    return x.select(-1, 0)


def everywhere(i: Tensor) -> Tensor:
    """The same position in all columns."""
    return i.reshape(-1, 1).expand(-1, WIDTH)


def apart(i: Tensor) -> Tensor:
    """A position for each element, all in memory."""
    return torch.stack([i.reshape(-1)] * WIDTH, -1)


def scores(x: Tensor, i: Tensor) -> Tensor:
    """A row of scores for each position, which is a class."""
    return column(x).expand(i.numel(), ROWS)


def of_slices(x: Tensor, s: Tensor, i: Tensor) -> Tensor:
    """A slice for each position, along the last dimension."""
    return s.reshape(i.numel(), WIDTH).t()


VECTORS: dict[str, Operation] = {
    "index_add": lambda x, i, s: x.index_add(0, i, s.reshape(-1, WIDTH)),
    "index_add_last": lambda x, i, s: x.t().index_add(1, i, of_slices(x, s, i)),
    "index_add_alpha": lambda x, i, s: x.index_add(0, i, s.reshape(-1, WIDTH), alpha=2),
    "index_add_middle": lambda x, i, s: x[None, :, None].index_add(
        1, i, s.reshape(1, -1, 1, WIDTH)
    ),
    "index_add_vector": lambda x, i, s: column(x).index_add(0, i, column(s).reshape(-1)),
    "index_copy": lambda x, i, s: x.index_copy(0, i, s.reshape(-1, WIDTH)),
    "index_copy_last": lambda x, i, s: x.t().index_copy(1, i, of_slices(x, s, i)),
    "index_copy_vector": lambda x, i, s: column(x).index_copy(0, i, column(s)),
    "index_fill": lambda x, i, s: x.index_fill(0, i, 7.0),
    "index_fill_last": lambda x, i, s: x.t().index_fill(1, i, torch.tensor(7.0)),
    "index_reduce_prod": lambda x, i, s: x.index_reduce(0, i, s.reshape(-1, WIDTH), "prod"),
    "index_reduce_mean": lambda x, i, s: x.index_reduce(0, i, s.reshape(-1, WIDTH), "mean"),
    "index_reduce_alone": lambda x, i, s: x.index_reduce(
        0, i, s.reshape(-1, WIDTH), "amax", include_self=False
    ),
    "index_select": lambda x, i, s: x.index_select(0, i),
    "index_select_second": lambda x, i, s: x.t().index_select(1, i),
    "index_select_third": lambda x, i, s: x.t()[None].index_select(2, i),
    "index_select_unfolded": lambda x, i, s: x.unfold(0, 2, 1).index_select(0, i),
    "gather_whole": lambda x, i, s: x.gather(0, everywhere(i.long())),
    "gather": lambda x, i, s: x.gather(0, apart(i)),
    "take_along_dim": lambda x, i, s: x.take_along_dim(i.reshape(-1, 1), 0),
    "scatter": lambda x, i, s: x.scatter(0, apart(i), s.reshape(-1, WIDTH)),
    "scatter_whole": lambda x, i, s: x.scatter(0, everywhere(i), s.reshape(-1, WIDTH)),
    "scatter_number": lambda x, i, s: x.scatter(0, everywhere(i), 7.0),
    "scatter_multiply": lambda x, i, s: x.scatter(0, everywhere(i), 7.0, reduce="multiply"),
    "scatter_add": lambda x, i, s: x.scatter_add(0, apart(i), s.reshape(-1, WIDTH)),
    "scatter_add_whole": lambda x, i, s: x.scatter_add(0, everywhere(i), s.reshape(-1, WIDTH)),
    "scatter_add_vector": lambda x, i, s: column(x).scatter_add(0, i, column(s)),
    "scatter_reduce_mean": lambda x, i, s: x.scatter_reduce(
        0, everywhere(i), s.reshape(-1, WIDTH), "mean"
    ),
    "scatter_reduce_alone": lambda x, i, s: x.scatter_reduce(
        0, everywhere(i), s.reshape(-1, WIDTH), "amin", include_self=False
    ),
    "take": lambda x, i, s: column(x).take(i),
    "put": lambda x, i, s: column(x).put(i, column(s)),
    "put_added": lambda x, i, s: column(x).put(i, column(s), accumulate=True),
    "indexed": lambda x, i, s: torch.ops.aten.index(x, [i]),
    "indexed_last": lambda x, i, s: x.t()[:, i],
    "indexed_twice": lambda x, i, s: x[i, i * 0],
    "index_put": lambda x, i, s: x.index_put((i,), s),
    "index_put_added": lambda x, i, s: x.index_put((i,), s, accumulate=True),
    "embedding": lambda x, i, s: F.embedding(i, x),
    "embedding_padded": lambda x, i, s: F.embedding(i, x, padding_idx=1),
    "nll_loss": lambda x, i, s: F.nll_loss(scores(x, i), i.reshape(-1)),
    "nll_loss_weighed": lambda x, i, s: F.nll_loss(
        scores(x, i), i.reshape(-1), weight=column(x).detach()
    ),
    "nll_loss_images": lambda x, i, s: F.nll_loss(
        scores(x, i).t()[None, :, None], i.reshape(1, 1, -1), reduction="none"
    ),
    "cross_entropy": lambda x, i, s: F.cross_entropy(scores(x, i), i.reshape(-1)),
    "one_hot": lambda x, i, s: F.one_hot(i, ROWS),
}
"""Operations that take no position, as well as one or several."""
FILLED: dict[str, Operation] = {
    "embedding_bag": lambda x, i, s: F.embedding_bag(i.reshape(1, -1), x, mode="mean"),
    "embedding_bag_max": lambda x, i, s: F.embedding_bag(i.reshape(1, -1), x, mode="max"),
    "multi_margin_loss": lambda x, i, s: F.multi_margin_loss(scores(x, i), i.reshape(-1)),
    "multilabel_margin_loss": lambda x, i, s: F.multilabel_margin_loss(
        scores(x, i)[:1], F.pad(i.reshape(1, -1), (0, ROWS - i.numel()), value=-1)
    ),
    "bincount": lambda x, i, s: torch.bincount(i.reshape(-1), minlength=ROWS),
    "repeat_interleave": lambda x, i, s: torch.repeat_interleave(i.reshape(-1)),
    "masked_scatter": lambda x, i, s: x.masked_scatter(
        F.pad(i.reshape(-1) > 0, (0, ROWS - i.numel())).reshape(-1, 1), column(x)
    ),
}
"""Operations that take at least one position."""
OPERATIONS = VECTORS | FILLED
FAR = 2**40
GROWING = ("bincount", "repeat_interleave")
"""Their results are as large as the positions are far."""
MASKED = ("indexed", "indexed_last", "indexed_twice", "index_put", "index_put_added")
"""They take bytes for masks."""

INSIDE = {"inside": [0, 3], "repeated": [2, 2]}
OUTSIDE = {"negative": [-1, 0], "lowest": [0, -4], "size": [4, 0], "below": [0, -5],
           "far": [FAR, 0], "far below": [1, -FAR]}  # fmt: skip
ONE = {"one": 2, "one negative": -1, "one outside": 4}


def positions(name: str, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    for kind, values in {**INSIDE, **OUTSIDE, **ONE, "none": []}.items():
        far = "far" in kind and (dtype != torch.int64 or name in GROWING)
        if not far and (values != [] or name in VECTORS):
            yield kind, torch.tensor(values, dtype=dtype)


def operands(index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(index.numel())
    return torch.randn(ROWS, WIDTH), index.clone(), torch.randn(*index.shape, WIDTH)


def outcome(of: Callable[..., Any], *args: Any) -> Any:
    try:
        return of(*args)
    except Exception as error:
        return error


def agree(got: Any, want: Any, said: int | None) -> str:
    """What is wrong with `got`; `said`: the position that an error of eager names."""
    if isinstance(want, Exception):
        if type(got) is not type(want):
            return f"{got!r} in the place of {want!r}"
        fact = str(said) if said is not None and str(said) in str(want) else ""
        return "" if fact in str(got) else f"{got!r} does not name {said}"
    if isinstance(got, Exception):
        return f"{got!r} in the place of a result"
    try:
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


def offender(index: Tensor) -> int | None:
    """The first position that eager could object to."""
    bad = index[(index < 0) | (index >= ROWS)]
    return int(bad.reshape(-1)[0]) if bad.numel() else None


def decomposed(of: Operation) -> Operation:
    def run(*args: Tensor) -> Any:
        with Decomposing():
            return of(*args)

    return run


def differences(name: str, other: Operation, *dtypes: torch.dtype) -> list[str]:
    found = []
    for dtype in dtypes:
        for kind, index in positions(name, dtype):
            want = outcome(OPERATIONS[name], *operands(index))
            got = outcome(other, *operands(index))
            wrong = agree(got, want, offender(index))
            found += [f"{dtype}, {kind}: {wrong}"] if wrong else []
    return found


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", OPERATIONS)
def test_through_primitives_alone(name: str) -> None:
    other = decomposed(OPERATIONS[name])
    dtypes = (torch.int64, torch.int32, torch.int16, *(() if name in MASKED else (torch.uint8,)))
    assert differences(name, other, *dtypes) == []


@pytest.mark.sweep(15)
@pytest.mark.parametrize("name", OPERATIONS)
def test_compiled(name: str) -> None:
    other = flambeau.compile(OPERATIONS[name])
    # torch makes classes of any integers one-hot where they are fake, as while this is compiled
    dtypes = (torch.int64,) if name == "one_hot" else (torch.int64, torch.int32)
    assert differences(name, other, *dtypes) == []


def gradients(of: Operation) -> Operation:
    """The derivatives of the sum of what `of` gives, each element with a weight of its own."""

    def run(x: Tensor, index: Tensor, s: Tensor) -> Any:
        x.requires_grad_()
        s.requires_grad_()
        result = of(x, index, s)
        weights = torch.arange(1.0, result.numel() + 1).reshape(result.shape)
        (result * weights).sum().backward()
        return x.grad, s.grad

    return run


DIFFERENTIABLE = ("index_add", "index_add_last", "index_add_alpha", "index_copy", "index_fill",
                  "index_reduce_mean", "index_select_second", "gather", "scatter",
                  "scatter_add_whole", "take", "put", "indexed", "index_put_added", "embedding",
                  "nll_loss_weighed", "masked_scatter", "multilabel_margin_loss")  # fmt: skip
UNORDERED = ("index_copy", "scatter", "put")
"""Which of two values in one place is kept is anybody's choice, and so is its derivative."""


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives(name: str) -> None:
    of = OPERATIONS[name]
    other = gradients(flambeau.compile(of))
    found = []
    for kind, values in (INSIDE | OUTSIDE).items():
        if kind == "repeated" and name in UNORDERED:
            continue
        index = torch.tensor(values)
        want = outcome(gradients(of), *operands(index))
        wrong = agree(outcome(other, *operands(index)), want, offender(index))
        found += [f"{kind}: {wrong}"] if wrong else []
    assert found == []


def gpu_program(of: Operation, index: Tensor) -> Program:
    """The program for a GPU that is not there."""
    seen: list[Program] = []

    def stop(stage: str, work: Any) -> None:
        if stage == "optimize":
            seen.append(work.scheduled())
            raise StopIteration

    with FakeTensorMode(allow_non_fake_inputs=True):
        fakes = [torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in operands(index)]
        gm = flambeau_prims.lower(fx.symbolic_trace(of), fakes)
        with pytest.raises(StopIteration):
            flambeau_inductor.compile(gm, fakes, options=Options(observer=stop, verify=True))
    return seen[0]


ON_A_GPU = ("index_add", "index_add_last", "index_add_vector", "index_copy", "index_copy_last",
            "index_fill", "index_reduce_prod", "index_select", "index_select_second", "gather",
            "gather_whole", "scatter", "scatter_add_whole", "take", "put_added", "indexed",
            "index_put_added", "embedding")  # fmt: skip


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ON_A_GPU)
def test_by_the_meaning_of_programs_for_a_gpu(name: str) -> None:
    """A GPU cannot raise errors of several classes: only that it ends is asked for."""
    of = OPERATIONS[name]
    program = gpu_program(of, torch.tensor([0, 3]))
    for values in (INSIDE | OUTSIDE).values():
        given = operands(torch.tensor(values))
        want = outcome(of, *given)
        got = outcome(run_program, program, list(given))
        if isinstance(want, Exception):
            assert isinstance(got, IndexError | RuntimeError), values
        else:
            torch.testing.assert_close(got[0], want)


MADE = {
    "a number": lambda: torch.tensor(1), "from the end": lambda: torch.tensor(-1),
    "int32": lambda: torch.tensor(1, dtype=torch.int32),
    "a sum": lambda: torch.tensor([0, 1]).sum(),
    "a part": lambda: torch.arange(3)[2], "filled": lambda: torch.full((), 1),
    "zero": lambda: torch.zeros((), dtype=torch.long), "beyond": lambda: torch.tensor(7),
    "a byte": lambda: torch.tensor(1, dtype=torch.uint8), "a flag": lambda: torch.tensor(True),
}  # fmt: skip
TAKEN = {
    "one": lambda x, k: x[k], "both": lambda x, k: x[k, k], "with a slice": lambda x, k: x[k, :2],
    "behind a slice": lambda x, k: x[:, k], "in a list": lambda x, k: x[[k]],
    "in a list of two": lambda x, k: x[[k, k]],
    "with places": lambda x, k: x[k, torch.tensor([0, 2])],
    "written": lambda x, k: (x.__setitem__(k, 3.0), x)[1],
    "a column written": lambda x, k: (x.__setitem__((slice(None), k), x[0] * 2), x)[1],
}  # fmt: skip


@pytest.mark.sweep(9)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("made", MADE)
def test_indices_of_no_dimension_that_the_function_makes(made, taken):
    """Python reads the number of an integer among them; bytes and flags are masks."""

    def fn(x):
        y = x * 1
        found = TAKEN[taken](y, MADE[made]())
        return found * 2, y

    compiled = flambeau.compile(fn, backend="aot_eager")

    def outcome(run):
        x = torch.arange(9.0).view(3, 3).requires_grad_()
        try:
            found, y = run(x)
        except IndexError as error:
            return str(error)[:40]
        (found.sum() + y.sum()).backward()
        return found.detach(), found.stride(), y.detach(), x.grad

    expected = outcome(fn)
    for _ in range(2):
        found = outcome(compiled)
        if isinstance(expected, str):
            assert found == expected
        else:
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
    if made not in ("a byte", "a flag", "beyond"):
        assert not flambeau.report(compiled).fallbacks
