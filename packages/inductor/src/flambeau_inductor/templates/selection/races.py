"""Races of templates against library calls, and of tilings against each other.

In: `Selected` and what was found in its program. Out: the same, with what won in place. Invariant:
the first of each race is what is taken without measurement, and nothing else is taken unless it was
measured to be faster.

Shape buckets: sizes that share one measurement. In: what was found in a program. Out: a text that
is the same for all of a class. Invariant: all that decides which way is the fastest, but for sizes,
is in the text as it is: dtype, order of operands in memory, whether the accelerator can read them,
what follows. Sizes are rounded up to one of four steps an octave; small ones, of which each fills
tiles differently, are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import torch

from flambeau_inductor.__about__ import __version__
from flambeau_inductor.autotune import Candidate, Tuner
from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.codegen.triton.tiling import Tiling, choose
from flambeau_inductor.errors import TritonUnsupported
from flambeau_inductor.indexing import hint
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import Buffer, Extern, Program, RunLoop
from flambeau_inductor.templates.attention.match_attention import FoundAttention, FoundBackward
from flambeau_inductor.templates.attention.problem import Attention
from flambeau_inductor.templates.call_replacement import Buffers, Selected, Several, facts, touching
from flambeau_inductor.templates.convolution import DepthwiseWriter, copy_of, reordered, tiles_for
from flambeau_inductor.templates.gemm import grouped
from flambeau_inductor.templates.gemm.epilogue import ProductEpilogue
from flambeau_inductor.templates.gemm.kernel import PackedWriter, ProductWriter
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.operands import operands_of
from flambeau_inductor.templates.gemm.problem import Matrix, Product
from flambeau_inductor.templates.gemm.split_k import split_product
from flambeau_inductor.templates.gemm.tiles import GemmTile, candidates
from flambeau_inductor.templates.selection import unmeasured_choices
from flambeau_inductor.templates.selection.trial_runs import Bench, Run, agreeing, in_order
from flambeau_inductor.templates.selection.unmeasured_choices import Found
from flambeau_inductor.tuning import MEASURED, Tuning
from flambeau_inductor.tuning.machine import THREAD_ELEMENTS, TMA_ALIGNMENT

LEAST = 64
"""Sizes below are classes of their own."""
STEPS = 4
"""Classes between a power of two and the next."""


def rounded(size: int) -> int:
    """The largest size of the class."""
    if size < LEAST:
        return size
    step = (1 << (size - 1).bit_length()) // 2 // STEPS
    return -(-size // step) * step


def product_class(found: MatchedProduct, device: str) -> str:
    """Of a product or a convolution, with what follows it."""
    product = found.product
    body = found.epilogue.body
    loads = {i.buffer for i in body if isinstance(i, Load) and i.buffer != found.epilogue.result}
    stores = {i.buffer for i in body if isinstance(i, Store)}
    window = product.window
    shape = "x".join(str(rounded(n)) for n in product.sizes)
    return _size_text(
        "product",
        device,
        shape,
        product.dtype,
        f"tf32 {product.tf32}",
        [_order(each, product.dtype.itemsize) for each in (product.a, product.b)],
        f"added {product.added is not None}",
        f"fused {found.reader is not None} {len(loads)} {len(stores)} {len(body)}",
        window and (window.channels, window.kernel, window.step, window.dilation, window.taps[0]),
        product.groups and (product.groups.along, product.groups.count),
    )


def attention_class(attention: Attention, target: str, device: str) -> str:
    """Of attention, or of its gradients, that the library computes by `target`."""
    batch, heads, kept, length, keys, width, out = attention.sizes
    operands = (attention.q, attention.k, attention.v)
    return _size_text(
        target,
        device,
        (rounded(batch * heads), kept == heads, rounded(length), rounded(keys), width, out),
        (length % LEAST == 0, keys % LEAST == 0),
        attention.dtype,
        f"causal {attention.causal}, bias {attention.bias is not None}",
        f"sums {attention.sums is not None}",
        [
            all(s * attention.dtype.itemsize % TMA_ALIGNMENT == 0 for s in o.strides[:3])
            for o in operands
        ],
    )


def _order(matrix: Matrix, itemsize: int) -> str:
    """Which of rows and columns lie side by side, and whether the others are aligned."""
    _, rows, columns = matrix.strides
    along = "columns" if columns == 1 else "rows" if rows == 1 else "neither"
    steps = [s for s in (rows, columns) if s != 1]
    aligned = all(s * itemsize % TMA_ALIGNMENT == 0 for s in (*steps, matrix.offset))
    return f"{along} {aligned}"


def _size_text(*parts: object) -> str:
    return " ".join(["class", __version__, *map(str, parts)])


LIBRARY = "library"
Ways = Iterator[tuple[str, Several]]


def tiles_of(found: MatchedProduct, described: bool, tuning: Tuning = MEASURED) -> list[GemmTile]:
    """What is worth trying; what is taken without measurement is the first of them."""
    product = found.product
    if product.window is not None and product.window.depthwise:
        return tiles_for(product, tuning)
    first = unmeasured_choices.tile_of(found, tuning)
    if product.stored is not None or product.packed is not None:
        return [] if first is None else [first]
    if first is not None and first.described and not described:
        first = None
    if product.groups is None:
        shape = unmeasured_choices.shape_of(product)
        some = candidates(shape, described=described, tuning=tuning)
    else:
        some = grouped.tiles_for(product, described, tuning)
    read = reordered(product, "weights") or product
    fit = [t for t in some if not t.described or operands_of(read, t)]
    return fit if first is None else [first, *(t for t in fit if t != first)]


def product_kernel(
    product: Product,
    epilogue: ProductEpilogue,
    tile: GemmTile,
    buffers: Buffers,
    name: str = "product",
) -> TritonKernel:
    """The kernel; `buffers` are all that it touches."""
    writer = ProductWriter
    if product.groups is not None:
        writer = grouped.GroupedWriter
    elif product.packed is not None:
        writer = PackedWriter
    elif product.window is not None and product.window.depthwise:
        writer = DepthwiseWriter
    return writer.written(product, epilogue, tile, buffers, name)


def way_of(program: Program, found: MatchedProduct, tile: GemmTile) -> Several:
    """The kernels of a product with such tiles. Raises TritonUnsupported: its reader has no Triton
    form."""
    dtypes, numels = facts(program)
    name = f"{found.result}_{tile.name}"
    device = next(b.layout.device for b in program.buffers if b.name == found.result)
    copy = f"{found.result}_weights"  # the same for all tiles
    read, ordered = found, reordered(found.product, copy)
    if ordered is not None:
        dtypes[copy], numels[copy] = ordered.dtype, ordered.sizes[2] * ordered.sizes[3]
        read = replace(found, product=ordered)
    if tile.parts > 1:
        way = split_product(read, tile, (dtypes, numels), name, device)
    else:
        kernel = product_kernel(read.product, found.epilogue, tile, (dtypes, numels), name)
        loop = replace(found.epilogue.loop, name=name)
        if found.reader is None:
            loop = touching(kernel, [found.result], prod(read.product.outer), read.product.dtype)
        way = Several((), (loop,), (kernel,), (name,))
    if ordered is None:
        return way
    buffer, loop = copy_of(found.product, copy, device)
    return way.after(buffer, loop, generate(loop, dtypes, numels))


def ways(program: Program, found: Found, described: bool, tuning: Tuning) -> Ways:
    """Kernels that are worth trying, by name; what is taken without measurement is the first of
    them. Raises TritonUnsupported: what is to be fused has no Triton form."""
    if isinstance(found, MatchedProduct):
        return ((t.name, way_of(program, found, t)) for t in tiles_of(found, described, tuning))
    return found.ways(facts(program), described, tuning)


def race(selected: Selected, found: Found, tuner: Tuner, device: str, described: bool) -> None:
    """The template's kernels, with the epilogue, in place of the library's (and of the loop's), if
    they are faster."""
    program = selected.program
    call = program.steps[found.call]
    assert isinstance(call, Extern)
    try:
        made = dict(ways(program, found, described, selected.tuning))
    except TritonUnsupported:  # the loop that reads it has no Triton form: nothing can be fused
        return
    if not made:
        return

    if isinstance(found, MatchedProduct):
        kind, sizes = "product", tuple(found.product.sizes)
        kin = product_class(found, device)
    else:
        kind = "attention" if isinstance(found, FoundAttention) else "backward"
        sizes = found.attention.sizes
        kin = attention_class(found.attention, call.target, device)
    key = _key(kind, device, (_text(way.kernels) for way in made.values()), sizes)
    # the default is the first: with what is known, on a trusted device, a way
    known = selected.trusted and unmeasured_choices.known(program, found, selected.tuning)
    names = [*made, LIBRARY] if known else [LIBRARY, *made]

    def racing() -> Sequence[Candidate]:
        run = _runs(selected, found, call, made, tuner)
        return [Candidate(name, run[name]) for name in names]

    winner = tuner.choose(key, names, racing, kin)
    if winner == LIBRARY:
        selected.chosen[found.result] = LIBRARY
    else:
        selected.take(found, winner, made[winner])


def _runs(
    selected: Selected, found: Found, call: Extern, ways: Mapping[str, Several], tuner: Tuner
) -> dict[str, Run]:
    """The ways to compute what a call does, and the library's, on memory of their own; gradients of
    attention are not compared with the library's."""
    program = selected.program
    bench = _bench(selected, tuner, (k.buffer for way in ways.values() for k in way.kept))
    kernels = {k.name: k for way in ways.values() for k in way.kernels}
    results = [found.result]
    if isinstance(found, MatchedProduct):
        if found.product.groups is not None:
            bench.fill(found.product.groups.ends, grouped.even_ends(found.product))
        if found.reader is not None:
            reader = program.steps[found.reader]
            assert isinstance(reader, RunLoop)
            kernels["reader"] = generate(replace(reader.loop, name="reader"), *facts(program))
            read = {i.buffer for i in reader.loop.body if isinstance(i, Load)}
            stored = {i.buffer for i in reader.loop.body if isinstance(i, Store)}
            results = sorted(stored - read)
    built = bench.kernels(list(kernels.values()))
    ours = {name: in_order(*(built[k.name] for k in way.kernels)) for name, way in ways.items()}
    library, after = bench.call(call), [built["reader"]] if "reader" in built else []
    if not isinstance(found, FoundBackward):
        whole = in_order(_into(bench, found.result, library, call), *after)
        ours = agreeing(bench, whole, ours, results)
    return ours | {LIBRARY: in_order(library, *after)}


def race_tilings(selected: Selected, loop: Loop, tuner: Tuner, device: str) -> None:
    """Another tiling for a loop over much memory, if one is faster."""
    if selected.program.symbols:
        return  # what is the fastest at the sizes of this compile need not be at others
    dtypes, numels = facts(selected.program)
    try:
        first = choose(loop, selected.tuning)
        tilings = {"model": first} | alternatives(first, selected.tuning.raced_points)
        if len(tilings) < 2:
            return
        kernels = {
            name: generate(replace(loop, name=f"{loop.name}_{name}", origins=()), dtypes, numels, t)
            for name, t in tilings.items()
        }
    except TritonUnsupported:
        return  # whoever generates the loop's kernel says why it has none

    def racing() -> Sequence[Candidate]:
        built = _bench(selected, tuner).kernels(list(kernels.values()))
        return [Candidate(name, built[kernel.name]) for name, kernel in kernels.items()]

    texts = (_text((kernel,)) + str(kernel.warps) for kernel in kernels.values())
    winner = tuner.choose(_key("tiling", device, texts), list(kernels), racing)
    selected.chosen[loop.name] = winner
    if winner != "model":
        selected.kernels[loop.name] = kernels[winner]


def alternatives(tiling: Tiling, least_points: int) -> dict[str, Tiling]:
    """Half and twice the warps, and twice the rows (or the block) of a program."""
    if prod(hint(d.size) for d in tiling.dimensions) < least_points:
        return {}
    found: dict[str, Tiling] = {}
    first = tiling.dimensions[0]
    twice = (replace(first, block=first.block * 2), *tiling.dimensions[1:])
    for name, warps, dimensions in (
        ("fewer_warps", tiling.warps // 2, tiling.dimensions),
        ("more_warps", tiling.warps * 2, tiling.dimensions),
        ("wider", tiling.warps, twice),
        ("wider_more_warps", tiling.warps * 2, twice),
    ):
        elements = prod(d.block for d in dimensions)
        grown = dimensions is twice and first.block >= hint(first.size)
        if 1 <= warps <= 32 and not grown and elements <= THREAD_ELEMENTS * 32 * warps:
            found[name] = replace(tiling, dimensions=dimensions, warps=warps)
    return found


def _bench(selected: Selected, tuner: Tuner, more: Iterable[Buffer] = ()) -> Bench:
    layouts = {b.name: b.layout for b in (*selected.program.buffers, *more)}
    return Bench(layouts, tuner.budget, selected.library)


def _into(bench: Bench, result: str, library: Run, call: Extern) -> Run:
    """A library call whose result, if it makes its own, is copied to where kernels leave theirs."""
    if not call.results:
        return library

    def run() -> None:
        made = library()
        first = made[0] if isinstance(made, tuple | list) else made
        assert isinstance(first, torch.Tensor)
        bench.tensor(result).copy_(first)

    return run


def _text(kernels: Sequence[TritonKernel]) -> str:
    return "\n".join(
        kernel.source.replace(kernel.name, "kernel") + repr((kernel.constants, kernel.programs))
        for kernel in kernels
    )


def _key(kind: str, device: str, texts: Iterable[str], sizes: Sequence[int] = ()) -> str:
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]
    return " ".join([kind, device, "x".join(map(str, sizes)), digest])
