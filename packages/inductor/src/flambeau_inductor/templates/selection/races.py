"""Races of templates against library calls, and of tilings against each other.

In: `Selected` and what was found in its program. Out: the same, with what won in place. Invariant:
the first of each race is what is taken without measurement, and nothing else is taken unless it was
measured to be faster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

import torch

from flambeau_inductor.autotune import Candidate, Tuner
from flambeau_inductor.codegen.errors import TritonUnsupported
from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.codegen.triton.tiling import Tiling, choose
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import Buffer, Extern, Program, RunLoop
from flambeau_inductor.templates.attention.flash_backward import backward_blocks
from flambeau_inductor.templates.attention.flash_forward import attention_kernel
from flambeau_inductor.templates.attention.match_attention import FoundAttention, FoundBackward
from flambeau_inductor.templates.attention.problem import blocks_for
from flambeau_inductor.templates.convolution.depthwise import tiles_for
from flambeau_inductor.templates.convolution.match_convolution import reordered
from flambeau_inductor.templates.gemm import grouped
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.split_k import Several
from flambeau_inductor.templates.gemm.tiles import GemmTile, candidates
from flambeau_inductor.templates.gemm.tma import operands_of
from flambeau_inductor.templates.selection import library_replacements, shape_buckets
from flambeau_inductor.templates.selection.substitution import (
    Selected,
    facts,
    way_of,
    with_attention,
    with_backward,
    with_product,
)
from flambeau_inductor.templates.selection.trial_runs import Bench, Run, agreeing, in_order
from flambeau_inductor.tuning import MEASURED, Tuning
from flambeau_inductor.tuning.machine import THREAD_ELEMENTS

LIBRARY = "library"


def tiles_of(found: MatchedProduct, described: bool, tuning: Tuning = MEASURED) -> list[GemmTile]:
    """What is worth trying; what is taken without measurement is the first of them."""
    product = found.product
    batch, m, n, k = product.sizes
    if product.window is not None and product.window.depthwise:
        return tiles_for(product, tuning)
    runs = product.window.runs if product.window is not None else 0
    item = product.dtype.itemsize
    first = library_replacements.tile_of(found, tuning)
    if first is not None and first.described and not described:
        first = None
    some = candidates(m, n, k, batch, item, described=described, runs=runs, tuning=tuning)
    if product.groups is not None:
        some = grouped.tiles_for(product, described, tuning)
    read = reordered(product, "weights") or product
    fit = [t for t in some if not t.described or operands_of(read, t)]
    return fit if first is None else [first, *(t for t in fit if t != first)]


def race_product(
    selected: Selected, found: MatchedProduct, tuner: Tuner, device: str, described: bool
) -> None:
    """The template's product, with its epilogue, in place of the library's and the loop's."""
    program = selected.program
    dtypes, numels = facts(program)
    ways: dict[str, Several] = {}
    for tile in tiles_of(found, described, selected.tuning):
        try:
            ways[tile.name] = way_of(program, found, tile)
        except TritonUnsupported:  # the loop that reads it has no Triton form: nothing can be fused
            return
    if not ways:
        return

    def runs() -> dict[str, Run]:
        bench = _bench(selected, tuner, (k.buffer for way in ways.values() for k in way.kept))
        if found.product.groups is not None:
            bench.fill(found.product.groups.ends, grouped.even_ends(found.product))
        kernels = list({k.name: k for way in ways.values() for k in way.kernels}.values())
        call = _call(program, found.call)
        library, results = [bench.call(call)], [found.result]
        if found.reader is not None:
            reader = program.steps[found.reader]
            assert isinstance(reader, RunLoop)
            kernels.append(generate(replace(reader.loop, name="reader"), dtypes, numels))
            read = {i.buffer for i in reader.loop.body if isinstance(i, Load)}
            stored = {i.buffer for i in reader.loop.body if isinstance(i, Store)}
            results = sorted(stored - read)
        built = bench.kernels(kernels)
        whole = [_into(bench, found.result, library[0], call)]
        if found.reader is not None:
            library.append(built["reader"])
            whole.append(built["reader"])
        ours = {name: in_order(*(built[k.name] for k in way.kernels)) for name, way in ways.items()}
        checked = agreeing(bench, in_order(*whole), ours, results)
        return checked | {LIBRARY: in_order(*library)}

    kernels = {name: way.kernels for name, way in ways.items()}
    key = _key("product", device, map(_text, kernels.values()), found.product.sizes)
    kin = shape_buckets.product_class(found, device)
    known = library_replacements.tile_of(found, selected.tuning) is not None
    winner = _race(selected, tuner, found.result, key, kernels, known, runs, kin)
    if winner != LIBRARY:
        with_product(selected, found, ways[winner])


def race_attention(
    selected: Selected, found: FoundAttention, tuner: Tuner, device: str, described: bool
) -> None:
    """The template's attention in place of the library's, if it is faster."""
    program, a = selected.program, found.attention
    call = _call(program, found.call)
    kernels = {
        blocks.name: (
            attention_kernel(a, blocks, *facts(program), f"{found.result}_{blocks.name}"),
        )
        for blocks in blocks_for(a, described, selected.tuning)
    }

    def runs() -> dict[str, Run]:
        bench = _bench(selected, tuner)
        built = bench.kernels([kernel for (kernel,) in kernels.values()])
        library = bench.call(call)
        ours = {name: built[kernel.name] for name, (kernel,) in kernels.items()}
        whole = _into(bench, found.result, library, call)
        return agreeing(bench, whole, ours, [found.result]) | {LIBRARY: library}

    key = _key("attention", device, map(_text, kernels.values()), a.sizes)
    kin = shape_buckets.attention_class(a, call.target, device)
    known = library_replacements.better(program, found.call, a, selected.tuning)
    winner = _race(selected, tuner, found.result, key, kernels, known, runs, kin)
    if winner != LIBRARY:
        with_attention(selected, found, kernels[winner][0])


def race_backward(
    selected: Selected, found: FoundBackward, tuner: Tuner, device: str, described: bool
) -> None:
    """The template's gradients of attention in place of the library's, if that is faster."""
    program, forward = selected.program, found.backward.forward
    call = _call(program, found.call)
    kernels: dict[str, tuple[TritonKernel, ...]] = {}
    for pair in backward_blocks(forward, described, selected.tuning):
        names = [blocks.name for blocks in pair]
        prefix = "_".join((found.result, *names))
        kernels["+".join(names)] = found.kernels(pair, *facts(program), prefix)

    def runs() -> dict[str, Run]:
        bench = _bench(selected, tuner, [found.memory])
        built = bench.kernels([kernel for way in kernels.values() for kernel in way])
        ours = {name: in_order(*(built[k.name] for k in way)) for name, way in kernels.items()}
        return ours | {LIBRARY: bench.call(call)}

    key = _key("backward", device, map(_text, kernels.values()), forward.sizes)
    kin = shape_buckets.attention_class(forward, call.target, device)
    known = library_replacements.better(program, found.call, forward, selected.tuning)
    winner = _race(selected, tuner, found.result, key, kernels, known, runs, kin)
    if winner != LIBRARY:
        with_backward(selected, found, kernels[winner])


def race_tilings(selected: Selected, loop: Loop, tuner: Tuner, device: str) -> None:
    """Another tiling for a loop over much memory, if one is faster."""
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
    if prod(d.size for d in tiling.dimensions) < least_points:
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
        grown = dimensions is twice and first.block >= first.size
        if 1 <= warps <= 32 and not grown and elements <= THREAD_ELEMENTS * 32 * warps:
            found[name] = replace(tiling, dimensions=dimensions, warps=warps)
    return found


def _race(
    selected: Selected,
    tuner: Tuner,
    result: str,
    key: str,
    ways: Mapping[str, object],
    known: bool,
    runs: Callable[[], Mapping[str, Run]],
    kin: str,
) -> str:
    """Which of the ways to compute `result`, or the library, won. The default is the first: with
    `known`, on a trusted device, a way."""
    first = selected.trusted and known
    names = [*ways, LIBRARY] if first else [LIBRARY, *ways]

    def racing() -> Sequence[Candidate]:
        made = runs()
        return [Candidate(name, made[name]) for name in names]

    selected.chosen[result] = winner = tuner.choose(key, names, racing, kin)
    return winner


def _bench(selected: Selected, tuner: Tuner, more: Iterable[Buffer] = ()) -> Bench:
    layouts = {b.name: b.layout for b in (*selected.program.buffers, *more)}
    return Bench(layouts, tuner.budget, selected.library)


def _call(program: Program, position: int) -> Extern:
    step = program.steps[position]
    assert isinstance(step, Extern)
    return step


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
