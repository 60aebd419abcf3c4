"""Pattern matching of matrix products, implicit GEMMs among them.

In: the steps of a program. Out: `MatchedProduct`: a product, the library call that computes it now,
and the pointwise loop that alone reads its result, where there is one. Invariant: between the call
and the loop nothing is computed, so that both can run at the loop's place.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import torch

from flambeau_inductor._torch_compat import convolutions_tf32
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import (
    Alloc,
    Argument,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    Reuse,
    RunLoop,
    Step,
)
from flambeau_inductor.ir.steps import touched
from flambeau_inductor.templates.convolution import match_convolution
from flambeau_inductor.templates.gemm import grouped
from flambeau_inductor.templates.gemm.epilogue import (
    NoEpilogue,
    ProductEpilogue,
    epilogue_of,
    plain,
)
from flambeau_inductor.templates.gemm.problem import Matrix, Product, layout_of, row_major

TARGETS = frozenset({"aten.mm.out", "aten.bmm.out", "aten.addmm.out", "aten.baddbmm.out"})
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})


@dataclass(frozen=True, slots=True)
class MatchedProduct:
    """`call` is the position of the library call, `reader` that of the loop behind it, whose
    instructions `epilogue` has; without one the epilogue stores the product to `result`."""

    product: Product
    epilogue: ProductEpilogue
    result: str
    call: int
    reader: int | None
    refused: str = ""


def find(program: Program, tf32: bool, kernels: Container[str] = ()) -> list[MatchedProduct]:
    """The products that a template could compute, in order; `kernels` are the names of loops that
    stand for kernels of templates, which take nothing more in."""
    layouts = {b.name: b.layout for b in program.buffers}
    readers = _readers(program)
    found: list[MatchedProduct] = []
    for position, step in enumerate(program.steps):
        if not isinstance(step, Extern):
            continue
        if step.target == match_convolution.TARGET:
            product = match_convolution.convolution_of(step, layouts, convolutions_tf32())
        elif step.target == grouped.TARGET:
            product = grouped.grouped_of(step, layouts)
        elif step.target in TARGETS:
            product = product_of(step, layouts, tf32)
        else:
            continue
        if product is None:
            continue
        result = step.into[0].buffer if step.into else str(step.results[0])
        reader, refused = _reader(program, position, readers.get(result, []), kernels)
        epilogue = None
        if reader is not None:
            loop = program.steps[reader]
            assert isinstance(loop, RunLoop)
            try:
                epilogue = epilogue_of(loop.loop, result, product.outer)
            except NoEpilogue as error:
                reader, refused, epilogue = None, str(error), None
        if epilogue is None:
            epilogue = _stored(product, result)
        found.append(MatchedProduct(product, epilogue, result, position, reader, refused))
    return found


def product_of(step: Extern, layouts: Mapping[str, Layout], tf32: bool) -> Product | None:
    """The product that a library call computes; None for one that no template takes."""
    added, operands = None, step.args
    if len(step.args) == 3:
        added, operands = step.args[0], step.args[1:]
    a, b = (layout_of(each, layouts) for each in operands)
    into = layout_of(step.into[0], layouts)
    if a is None or b is None or into is None or into.device.type != "cuda":
        return None
    try:
        (left, a_strides, a_from), (right, b_strides, b_from) = a.static(), b.static()
        shape, stride, start = into.static()
        more = layout_of(added, layouts)
        third = None if more is None else more.static()
    except TypeError:  # a size is open
        return None
    if into.dtype not in DTYPES or not a.dtype == b.dtype == into.dtype or start:
        return None
    if 0 in (*left, *right) or stride != row_major(shape):
        return None
    batched = len(shape) == 3
    batch = shape[0] if batched else 1
    kwargs = dict(step.kwargs)
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    if not isinstance(alpha, int | float) or not isinstance(beta, int | float):
        return None
    matrix = None
    if added is not None:
        if third is None or more is None or more.dtype != into.dtype:
            return None
        matrix = _spread(added, third, len(shape))
    zero = () if batched else (0,)
    return Product(
        Matrix(_buffer(operands[0]), (*zero, *a_strides), a_from),  # type: ignore[arg-type]
        Matrix(_buffer(operands[1]), (*zero, *b_strides), b_from),  # type: ignore[arg-type]
        (batch, left[-2], right[-1], left[-1]),
        into.dtype,
        matrix,
        float(alpha),
        float(beta),
        tf32,
    )


def _buffer(argument: Argument) -> str:
    assert isinstance(argument, Ref)
    return argument.buffer


def _spread(
    added: Argument, layout: tuple[tuple[int, ...], tuple[int, ...], int], rank: int
) -> Matrix:
    shape, stride, offset = layout
    steps = [0 if n == 1 else s for n, s in zip(shape, stride, strict=True)]
    padded = [0] * (3 - len(steps)) + steps
    assert rank in (2, 3)
    return Matrix(_buffer(added), (padded[0], padded[1], padded[2]), offset)


def _stored(product: Product, result: str) -> ProductEpilogue:
    batch, rows, columns = product.outer
    at = Var("z0") * (rows * columns) + Var("y0") * columns + Var("x0")
    load = Load("", at, product.dtype)
    return plain("", (batch, rows, columns), load, Store(result, at, 0))


def _readers(program: Program) -> dict[str, list[int]]:
    """Positions of the steps that read each buffer; an output counts as one at the end."""
    found: dict[str, list[int]] = {}
    for position, step in enumerate(program.steps):
        if not isinstance(step, Alloc | Reuse | FreeBuffer):
            for name in touched(step)[0]:
                found.setdefault(name, []).append(position)
    for output in program.outputs:
        if isinstance(output, Ref):
            found.setdefault(output.buffer, []).append(len(program.steps))
    return found


def _reader(
    program: Program, call: int, readers: list[int], kernels: Container[str]
) -> tuple[int | None, str]:
    """The loop that alone reads the result, with nothing computed before it since the call."""
    if len(readers) != 1:
        return None, f"{len(readers)} steps read the product"
    (position,) = readers
    step = program.steps[position] if position < len(program.steps) else None
    if not isinstance(step, RunLoop):
        return None, "no loop reads the product"
    if step.loop.name in kernels:
        return None, "a template's kernel reads the product"
    between = program.steps[call + 1 : position]
    if not all(isinstance(step, Alloc | Reuse | FreeBuffer) for step in between):
        return None, "something else is computed between the product and its reader"
    return position, ""


def fused_steps(program: Program, found: MatchedProduct, loops: tuple[Loop, ...]) -> Program:
    """The program with `loops` in place of the call (and of its reader).

    Memory of the product itself is not asked for any more, and memory of the operands, which are
    read until the end of the loop now, is given to nobody before that.
    """
    new: list[Step] = [RunLoop(loop) for loop in loops]
    if found.reader is None:
        call = program.steps[found.call]
        if isinstance(call, Extern) and call.results:  # the library made the result's memory
            new.insert(0, Alloc(found.result))
        steps = [*program.steps[: found.call], *new, *program.steps[found.call + 1 :]]
        return replace(program, steps=tuple(steps))
    operands = {matrix.buffer for matrix in found.product.operands}
    made: list[Step] = []
    freed: list[Step] = []
    for position, step in enumerate(program.steps):
        between = found.call < position < found.reader
        if position == found.call:
            continue
        if position == found.reader:
            made += [*new, *freed]
        elif isinstance(step, Alloc | FreeBuffer) and step.buffer == found.result:
            continue
        elif isinstance(step, FreeBuffer) and between:
            freed.append(step)
        elif isinstance(step, Reuse) and step.buffer == found.result:
            made.append(FreeBuffer(step.old))
        elif isinstance(step, Reuse) and step.old == found.result:
            made.append(Alloc(step.buffer))
        elif isinstance(step, Reuse) and between and step.old in operands:
            made.append(Alloc(step.buffer))
            freed.append(FreeBuffer(step.old))
        else:
            made.append(step)
    return replace(program, steps=tuple(made))
