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
from flambeau_inductor.ir.loops import Load, Store
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
from flambeau_inductor.runtime.operators import PACKED_PRODUCT, WIDENED_PRODUCT
from flambeau_inductor.templates import convolution
from flambeau_inductor.templates.call_replacement import Several, on_processor
from flambeau_inductor.templates.gemm import grouped
from flambeau_inductor.templates.gemm.epilogue import (
    NoEpilogue,
    ProductEpilogue,
    epilogue_of,
    plain,
)
from flambeau_inductor.templates.gemm.problem import (
    Matrix,
    Packed,
    Product,
    Static,
    dtype_of,
    matrix_of,
    row_major,
    static_of,
)

TARGETS = frozenset({"aten.mm.out", "aten.bmm.out", "aten.addmm.out", "aten.baddbmm.out"})
DTYPES = frozenset({torch.bfloat16, torch.float16, torch.float32})


@dataclass(frozen=True, slots=True)
class MatchedProduct:
    """`call` is the position of the library call, `reader` that of the loop that reads its result,
    whose instructions `epilogue` has; without one the epilogue stores the product to `result`."""

    product: Product
    epilogue: ProductEpilogue
    result: str
    call: int
    reader: int | None
    refused: str = ""

    def within(self, program: Program, way: Several) -> Program:
        """The program with the loops of `way` in place of the call (and of its reader): without
        memory for the product itself, and with that of the operands freed after the loops."""
        if self.reader is None:
            call = program.steps[self.call]
            # others write into memory that is there
            makes = isinstance(call, Extern) and bool(call.results)
            return way.within(program, self.call, [self.result] * makes)
        operands = {matrix.buffer for matrix in self.product.operands}
        made: list[Step] = []
        freed: list[Step] = []
        for position, step in enumerate(program.steps):
            between = self.call < position < self.reader
            if position == self.call:
                continue
            if position == self.reader:
                made += [*way.steps(), *freed]
            elif isinstance(step, Alloc | FreeBuffer) and step.buffer == self.result:
                continue
            elif isinstance(step, FreeBuffer) and between:
                freed.append(step)
            elif isinstance(step, Reuse) and step.buffer == self.result:
                made.append(FreeBuffer(step.old))
            elif isinstance(step, Reuse) and step.old == self.result:
                made.append(Alloc(step.buffer))
            elif isinstance(step, Reuse) and between and step.old in operands:
                made.append(Alloc(step.buffer))
                freed.append(FreeBuffer(step.old))
            else:
                made.append(step)
        return replace(program, steps=tuple(made), buffers=way.with_kept(program))


def find(program: Program, tf32: bool, kernels: Container[str] = ()) -> list[MatchedProduct]:
    """The products that a template could compute, in order. Loops of the names `kernels` are
    templates' kernels, which fuse no more."""
    layouts = {b.name: b.layout for b in program.buffers}
    readers, elsewhere = _readers(program), on_processor(program)
    found: list[MatchedProduct] = []
    for position, step in enumerate(program.steps):
        if not isinstance(step, Extern):
            continue
        if step.target == convolution.TARGET:
            product = convolution.convolution_of(step, layouts, convolutions_tf32())
        elif step.target == grouped.TARGET:
            product = grouped.grouped_of(step, layouts)
        elif step.target == WIDENED_PRODUCT:
            product = widened_of(step, layouts)
        elif step.target == PACKED_PRODUCT:
            product = packed_of(step, layouts)
        elif step.target in TARGETS:
            product = product_of(step, layouts, tf32)
        else:
            continue
        if product is None:
            continue
        result = step.into[0].buffer if step.into else str(step.results[0])
        if result in elsewhere:
            continue
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
    *added, first, second = step.args
    into = step.into[0]
    found = [static_of(each, layouts) for each in (first, second, into, *added)]
    dtypes = {dtype_of(each, layouts) for each in (first, second, into, *added)}
    if None in found or len(dtypes) != 1:
        return None
    (dtype,) = dtypes
    a, b, (shape, stride, start), *more = (each for each in found if each is not None)
    if dtype not in DTYPES or start or 0 in (*a[0], *b[0]) or stride != row_major(shape):
        return None
    kwargs = dict(step.kwargs)
    alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
    if not isinstance(alpha, int | float) or not isinstance(beta, int | float):
        return None
    assert dtype is not None
    sizes = (shape[0] if len(shape) == 3 else 1, a[0][-2], b[0][-1], a[0][-1])
    left, right = (matrix_of(each, static) for each, static in ((first, a), (second, b)))
    spread = None if not added else _spread(added[0], more[0])
    return Product(left, right, sizes, dtype, spread, float(alpha), float(beta), tf32)


def widened_of(step: Extern, layouts: Mapping[str, Layout]) -> Product | None:
    """The product of a matrix by one that is widened; None where a size is open."""
    first, second = step.args
    a, b = (static_of(each, layouts) for each in (first, second))
    dtype = dtype_of(first, layouts)
    if a is None or b is None or dtype is None or 0 in (*a[0], *b[0]):
        return None
    sizes = (1, a[0][0], b[0][1], a[0][1])
    left, right = matrix_of(first, a), matrix_of(second, b)
    return Product(left, right, sizes, dtype, stored=dtype_of(second, layouts))


def packed_of(step: Extern, layouts: Mapping[str, Layout]) -> Product | None:
    """The product of vectors by a matrix of four bits an element; None where a size is open, or
    where what a thread reads at once does not begin with a whole word."""
    first, second, third, group, zero = step.args
    a, b = (static_of(each, layouts) for each in (first, second))
    dtype, stored = dtype_of(first, layouts), dtype_of(second, layouts)
    if a is None or b is None or dtype is None or stored is None:
        return None
    ((rows, inner), (row, one), start), width = a, stored.itemsize
    (columns, _), (across, dense), begin = b
    whole = all(each * width % 4 == 0 for each in (across, begin)) and start % 2 == 0
    if not whole or one != 1 or dense != 1 or (rows > 1 and row % 2):
        return None
    assert isinstance(second, Ref) and isinstance(group, int) and isinstance(zero, int)
    words = Matrix(second.buffer, (0, 1, across * width // 4), begin * width // 4)
    scales = None if third is None else static_of(third, layouts)
    of = None if scales is None else matrix_of(third, scales)
    if of is not None:
        of = replace(of, strides=(0, of.strides[2], of.strides[1]))
    sizes, packed = (1, rows, columns, inner), Packed(of, group, zero)
    return Product(matrix_of(first, a), words, sizes, dtype, packed=packed)


def _spread(added: Argument, static: Static) -> Matrix:
    """What is added to each element of a product, with strides of 0 where it is broadcast."""
    shape, stride, offset = static
    steps = [0 if n == 1 else s for n, s in zip(shape, stride, strict=True)]
    batch, row, column = [0] * (3 - len(steps)) + steps
    assert isinstance(added, Ref)
    return Matrix(added.buffer, (batch, row, column), offset)


def _stored(product: Product, result: str) -> ProductEpilogue:
    _, rows, columns = product.outer
    at = Var("z0") * (rows * columns) + Var("y0") * columns + Var("x0")
    return plain("", product.outer, Load("", at, product.dtype), Store(result, at, 0))


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
