"""Every element counts: sums, products and extremes whose position, operand or both are the same
for all elements, or for all along an axis, combine each of them once.

The family: what combines elements x where the positions come from x where the elements come from.
Any two of the three meet in some program here; all three with FLAMBEAU_SWEEPS=1 (`nox -s sweeps`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.indexing import IntegerConstant as IndexConst
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Axis, Const, Load, Loop, Store
from flambeau_inductor.passes.primitive_passes import rewrite
from torch import Tensor, fx

from tests.codegen.cpp.run import run_loop as run_cpp
from tests.codegen.triton.run import run_loop as run_triton
from tests.evaluated import compiled

aten = torch.ops.aten
INTO, FROM, ACROSS = 3, 5, 4
Given = dict[str, Tensor]
Made = Callable[[Given], Tensor]

KINDS: dict[str, Callable[[Tensor, Tensor, tuple[int, ...]], Tensor]] = {
    "input": lambda whole, one, shape: whole,
    "constant": lambda whole, one, shape: whole.new_full(shape, 1),
    "expanded": lambda whole, one, shape: whole[:1].expand(shape),
    "scalar": lambda whole, one, shape: one.expand(shape),
    "attribute": lambda whole, one, shape: torch.arange(shape[0]).reshape(shape[0], 1)[
        :, : len(shape)
    ].expand(shape if len(shape) > 1 else (shape[0], 1)).reshape(shape) % INTO,
    "computed": lambda whole, one, shape: (whole + whole) - whole,
}  # fmt: skip
"""Where a tensor comes from: of an input of that shape, an input of one element, and the shape."""


def _reduced(how: str, self_too: bool) -> Callable[..., Tensor]:
    return lambda x, i, rows, s: x.scatter_reduce(0, i, s, how, include_self=self_too)


COMBINE: dict[str, Callable[..., Tensor]] = {
    **{
        f"scatter_reduce {how}{'' if too else ' alone'}": _reduced(how, too)
        for how in ("sum", "prod", "mean", "amax", "amin")
        for too in (True, False)
    },
    "scatter_add": lambda x, i, rows, s: x.scatter_add(0, i, s),
    "scatter_add across": lambda x, i, rows, s: x.t().scatter_add(1, i.t(), s.t()),
    "scatter": lambda x, i, rows, s: x.scatter(0, i, s),
    "index_add": lambda x, i, rows, s: x.index_add(0, rows, s, alpha=2),
    "index_add across": lambda x, i, rows, s: x.t().index_add(1, rows, s.t()),
    "index_put": lambda x, i, rows, s: x.index_put((rows,), s, accumulate=True),
    "index_put pairs": lambda x, i, rows, s: x.index_put((rows, rows), s[:, 0], accumulate=True),
    "index_copy": lambda x, i, rows, s: x.index_copy(0, rows, s),
    "embedding": lambda x, i, rows, s: aten.embedding_dense_backward(s, rows, INTO, -1, False),
    "embedding but one": lambda x, i, rows, s: aten.embedding_dense_backward(
        s, rows, INTO, 1, False
    ),
    "counts": lambda x, i, rows, s: rows.new_zeros(INTO).index_add(0, rows, torch.ones_like(rows)),
}
"""What combines, of a tensor, positions of elements, positions of rows and elements."""

ATOMIC = ("scatter_add", "index_add", "index_put", "embedding", "scatter_reduce sum")
"""Those that a GPU's kernels do: sums."""


def _along(name: str, dim: int) -> Callable[[Tensor], Tensor]:
    def of(x: Tensor) -> Tensor:
        found = getattr(x, name)(dim)
        return found[1] if name in ("max", "min", "sort") else found  # type: ignore[no-any-return]

    return of


REDUCE: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        f"{name} {dim}": _along(name, dim)
        for name in (
            "sum", "prod", "mean", "amax", "amin", "any", "all", "argmax", "argmin", "var", "std",
            "logsumexp", "softmax", "cumsum", "cumprod", "logcumsumexp", "max", "sort", "nansum",
        )
        for dim in (0, 1)
    },
    "sum": lambda x: x.sum(),
    "norm": lambda x: torch.linalg.vector_norm(x, 2, 0),
    "histc": lambda x: torch.histc(x.float(), 4, -3, 3),
    "nonzero": lambda x: torch.count_nonzero(x, 0),
    "deviation": lambda x: torch.var_mean(x, 0)[1],
}  # fmt: skip


SAME = ("constant", "expanded", "scalar")
STEP = 1 if os.environ.get("FLAMBEAU_SWEEPS") == "1" else 6


def _programs(triton: bool) -> Iterator[tuple[str, Made]]:
    for (i, place), (j, source), (k, name) in product(*map(enumerate, (KINDS, KINDS, COMBINE))):
        if (i + j + k) % STEP:
            continue
        varied = place not in SAME and source not in SAME  # other tests are about these
        if not varied and (not triton or name.startswith(ATOMIC)):

            def combined(g: Given, place: str = place, source: str = source, name: str = name):  # type: ignore[no-untyped-def]
                index = KINDS[place](g["places"], g["place"], (FROM, ACROSS))
                rows = KINDS[place](g["rows"], g["place"], (FROM,))
                src = KINDS[source](g["src"], g["one"], (FROM, ACROSS)).to(g["x"].dtype)
                return COMBINE[name](g["x"], index, rows, src)

            yield f"{name} at {place} of {source}", combined
    for (j, source), (k, name) in product(enumerate(KINDS), enumerate(REDUCE)):
        if (j + k) % min(STEP, 3):
            continue
        if not triton or not name.startswith(("cum", "logcum")):

            def reduced(g: Given, source: str = source, name: str = name):  # type: ignore[no-untyped-def]
                src = KINDS[source](g["src"], g["one"], (FROM, ACROSS)).to(g["x"].dtype)
                return REDUCE[name](src)

            yield f"{name} of {source}", reduced


def _given(dtype: torch.dtype) -> Given:
    def some(*shape: int) -> Tensor:
        return (torch.randn(shape) * 4).to(dtype)

    return {
        "x": some(INTO, ACROSS),
        "src": some(FROM, ACROSS),
        "one": some(),
        "places": torch.randint(0, INTO, (FROM, ACROSS)),
        "rows": torch.randint(0, INTO, (FROM,)),
        "place": torch.tensor(2),
    }


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("how", "dtype"), [("cpp", torch.float32), ("evaluated", torch.int8), ("triton", torch.float32)]
)
def test_each_element_once(how: str, dtype: torch.dtype, tmp_path: Path) -> None:
    if how == "triton":
        pytest.importorskip("triton", reason="triton is not installed")
    given = _given(dtype)
    names, wanted, chosen = [], [], []
    for name, of in _programs(how == "triton"):
        try:
            wanted.append(of(given))
        except (RuntimeError, NotImplementedError):  # eager has no such operator for the dtype
            continue
        names.append(name)
        chosen.append(of)
    assert len(names) > 200 / STEP
    args = list(given.values())

    def whole(x: Tensor, src: Tensor, one: Tensor, places: Tensor, rows: Tensor, place: Tensor):  # type: ignore[no-untyped-def]
        values = dict(zip(given, (x, src, one, places, rows, place), strict=True))
        return tuple(of(values) for of in chosen)

    low = rewrite(flambeau_prims.lower(fx.symbolic_trace(whole), args))
    if how == "evaluated":
        found = list(compiled(low, args).results)
    else:
        options = Options(kernels=how, cache_dir=str(tmp_path), verify=True)
        found = list(flambeau_inductor.compile(low, args, options=options)(list(args)))
    loose = {"rtol": 1e-5, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    for name, got, want in zip(names, found, wanted, strict=True):
        torch.testing.assert_close(
            got, want, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}", **loose
        )


@pytest.mark.parametrize("how", ["evaluated", "cpp", "triton"])
@pytest.mark.parametrize("value", ["constant", "row", "element"])
def test_stores_that_combine_along_axes_that_they_do_not_name(
    how: str, value: str, tmp_path: Path
) -> None:
    """Of more points than a vector, a block or a program has."""
    rows, columns = 3, 1500
    loads = {
        "constant": Const(2.0, torch.float32),
        "row": Load("in0", Var("x0"), torch.float32),
        "element": Load("in0", Var("x1"), torch.float32),
    }
    body = (loads[value], Store("out", IndexConst(1), 0, "add", count=rows * columns))
    loop = Loop("counted", (Axis("x0", rows), Axis("x1", columns)), (), body)
    given = torch.arange(float(columns)) % 7
    out = torch.tensor([1.0, 10.0, 100.0])
    buffers = {"in0": given, "out": out}
    if how == "evaluated":
        run_loop(loop, buffers)
    elif how == "cpp":
        run_cpp(loop, buffers, tmp_path)
    else:
        pytest.importorskip("triton", reason="triton is not installed")
        run_triton(loop, buffers, tmp_path)
    terms = {"constant": 2.0 * rows * columns, "row": given[:rows].sum() * columns}
    more = terms.get(value, given.sum() * rows)
    assert out.tolist() == [1.0, 10.0 + float(more), 100.0]
