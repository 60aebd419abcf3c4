"""Autotuning of templates against library calls.

In: `Selected` and what was found in its program. Out: the same, with what won in place. Invariant:
the first of each race is what is taken without measurement, and nothing else is taken unless it was
measured to be faster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from flambeau_inductor.autotune import Candidate, Tuner
from flambeau_inductor.codegen.triton.errors import TritonUnsupported
from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.codegen.triton.tiling import choose
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import Extern, Program, RunLoop
from flambeau_inductor.templates.attention.flash_backward import backward_blocks
from flambeau_inductor.templates.attention.flash_forward import attention_kernel
from flambeau_inductor.templates.attention.match_backward import FoundBackward
from flambeau_inductor.templates.attention.match_forward import FoundAttention
from flambeau_inductor.templates.attention.problem import blocks_for
from flambeau_inductor.templates.convolution.depthwise import tiles_for
from flambeau_inductor.templates.convolution.weights import reordered
from flambeau_inductor.templates.gemm import grouped_match
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.multi_kernel import Several
from flambeau_inductor.templates.gemm.tiles import GemmTile, candidates
from flambeau_inductor.templates.gemm.tma import operands_of
from flambeau_inductor.templates.selection import library_replacements, shape_buckets
from flambeau_inductor.templates.selection.correctness_check import agreeing
from flambeau_inductor.templates.selection.loop_tilings import alternatives
from flambeau_inductor.templates.selection.substitution import (
    Selected,
    facts,
    way_of,
    with_attention,
    with_backward,
    with_product,
)
from flambeau_inductor.templates.selection.trial_runs import Bench, Run, in_order
from flambeau_inductor.tuning import MEASURED, Tuning

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
        some = grouped_match.tiles_for(product, described, tuning)
    read = reordered(product, "weights") or product
    fit = [t for t in some if not t.described or operands_of(read, t)]
    return fit if first is None else [first, *(t for t in fit if t != first)]


def race_product(
    selected: Selected, found: MatchedProduct, tuner: Tuner, device: str, described: bool
) -> None:
    program = selected.program
    dtypes, numels = facts(program)
    ways: dict[str, Several] = {}
    for tile in tiles_of(found, described, selected.tuning):
        try:
            ways[tile.name] = way_of(program, found, tile)
        except TritonUnsupported:  # the loop behind it has no Triton form: nothing can be fused
            return
    if not ways:
        return
    texts = [_text(way.kernels) for way in ways.values()]
    key = _key("product", device, texts, found.product.sizes)

    def racing() -> Sequence[Candidate]:
        layouts = {b.name: b.layout for b in program.buffers}
        kept = [each.buffer for way in ways.values() for each in way.kept]
        layouts |= {buffer.name: buffer.layout for buffer in kept}
        bench = Bench(layouts, tuner.budget, selected.library)
        if found.product.groups is not None:
            bench.fill(found.product.groups.ends, grouped_match.even_ends(found.product))
        kernels = list({k.name: k for way in ways.values() for k in way.kernels}.values())
        call = program.steps[found.call]
        assert isinstance(call, Extern)
        library: list[Run] = [bench.call(call)]
        results = [found.result]
        if found.reader is not None:
            reader = program.steps[found.reader]
            assert isinstance(reader, RunLoop)
            own = generate(replace(reader.loop, name="reader"), dtypes, numels)
            kernels.append(own)
            read = {i.buffer for i in reader.loop.body if isinstance(i, Load)}
            stored = {i.buffer for i in reader.loop.body if isinstance(i, Store)}
            results = sorted(stored - read)
        runs = bench.kernels(kernels)
        whole = [_into(bench, found.result, library[0], call)]
        if found.reader is not None:
            library.append(runs["reader"])
            whole.append(runs["reader"])
        apart = {name: in_order(*(runs[k.name] for k in way.kernels)) for name, way in ways.items()}
        right = agreeing(bench, in_order(*whole), apart, results)
        return _candidates(right | {LIBRARY: in_order(*library)}, names)

    template = selected.trusted and library_replacements.tile_of(found, selected.tuning) is not None
    names = [*ways, LIBRARY] if template else [LIBRARY, *ways]
    winner = tuner.choose(key, names, racing, shape_buckets.product_class(found, device))
    selected.chosen[found.result] = winner
    if winner != LIBRARY:
        with_product(selected, found, ways[winner])


def _candidates(runs: Mapping[str, Run], names: Sequence[str]) -> list[Candidate]:
    """In the order of the names: the default of a race is its first."""
    return [Candidate(name, runs[name]) for name in names]


def race_attention(
    selected: Selected, found: FoundAttention, tuner: Tuner, device: str, described: bool
) -> None:
    """The template's attention in place of the library's, if it is faster."""
    program = selected.program
    dtypes, numels = facts(program)
    kernels = {
        blocks.name: attention_kernel(
            found.attention, blocks, dtypes, numels, f"{found.result}_{blocks.name}"
        )
        for blocks in blocks_for(found.attention, described, selected.tuning)
    }

    def racing() -> Sequence[Candidate]:
        layouts = {b.name: b.layout for b in program.buffers}
        bench = Bench(layouts, tuner.budget, selected.library)
        call = program.steps[found.call]
        assert isinstance(call, Extern)
        runs = bench.kernels(list(kernels.values()))
        library = bench.call(call)
        apart = {name: runs[kernel.name] for name, kernel in kernels.items()}
        whole = _into(bench, found.result, library, call)
        right = agreeing(bench, whole, apart, [found.result])
        return _candidates(right | {LIBRARY: library}, names)

    texts = [_text((kernel,)) for kernel in kernels.values()]
    key = _key("attention", device, texts, found.attention.sizes)
    template = selected.trusted and library_replacements.better(
        program, found.call, found.attention, selected.tuning
    )
    names = [*kernels, LIBRARY] if template else [LIBRARY, *kernels]
    kin = shape_buckets.attention_class(found.attention, _target(program, found.call), device)
    winner = tuner.choose(key, names, racing, kin)
    selected.chosen[found.result] = winner
    if winner != LIBRARY:
        with_attention(selected, found, kernels[winner])


def race_backward(
    selected: Selected, found: FoundBackward, tuner: Tuner, device: str, described: bool
) -> None:
    """The template's gradients of attention in place of the library's, if that is faster."""
    program = selected.program
    dtypes, numels = facts(program)
    ways: dict[str, tuple[TritonKernel, ...]] = {}
    for pair in backward_blocks(found.backward.forward, described, selected.tuning):
        name = "+".join(blocks.name for blocks in pair)
        prefix = f"{found.result}_{name.replace('+', '_')}"
        ways[name] = found.kernels(pair, dtypes, numels, prefix)

    def racing() -> Sequence[Candidate]:
        layouts = {b.name: b.layout for b in (*program.buffers, found.memory)}
        bench = Bench(layouts, tuner.budget, selected.library)
        call = program.steps[found.call]
        assert isinstance(call, Extern)
        runs = bench.kernels([kernel for way in ways.values() for kernel in way])
        rows = {
            name: Candidate(name, in_order(*(runs[k.name] for k in way)))
            for name, way in ways.items()
        }
        rows[LIBRARY] = Candidate(LIBRARY, bench.call(call))
        return [rows[name] for name in names]

    key = _key("backward", device, [_text(w) for w in ways.values()], found.backward.forward.sizes)
    template = selected.trusted and library_replacements.better(
        program, found.call, found.backward.forward, selected.tuning
    )
    names = [*ways, LIBRARY] if template else [LIBRARY, *ways]
    kin = shape_buckets.attention_class(
        found.backward.forward, _target(program, found.call), device
    )
    winner = tuner.choose(key, names, racing, kin)
    selected.chosen[found.result] = winner
    if winner != LIBRARY:
        with_backward(selected, found, ways[winner])


def race_tilings(selected: Selected, loop: Loop, tuner: Tuner, device: str) -> None:
    """Another tiling for a loop over much memory, if one is faster."""
    dtypes, numels = facts(selected.program)
    try:
        first = choose(loop, selected.tuning)
        tilings = {"model": first} | alternatives(first, selected.tuning.raced_points)
        if len(tilings) < 2:
            return
        kernels = {
            name: replace(
                generate(replace(loop, name=f"{loop.name}_{name}", origins=()), dtypes, numels, t),
            )
            for name, t in tilings.items()
        }
    except TritonUnsupported:
        return  # whoever generates the loop's kernel says why it has none

    def racing() -> Sequence[Candidate]:
        layouts = {b.name: b.layout for b in selected.program.buffers}
        bench = Bench(layouts, tuner.budget, selected.library)
        runs = bench.kernels(list(kernels.values()))
        return [Candidate(name, runs[kernel.name]) for name, kernel in kernels.items()]

    texts = [_text((kernel,)) + str(kernel.warps) for kernel in kernels.values()]
    winner = tuner.choose(_key("tiling", device, texts), list(kernels), racing)
    selected.chosen[loop.name] = winner
    if winner != "model":
        selected.kernels[loop.name] = kernels[winner]


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


def _target(program: Program, call: int) -> str:
    step = program.steps[call]
    assert isinstance(step, Extern)
    return step.target


def _text(kernels: Sequence[TritonKernel]) -> str:
    """What decides how fast it is, without names."""
    return "\n".join(
        kernel.source.replace(kernel.name, "kernel") + repr((kernel.constants, kernel.programs))
        for kernel in kernels
    )


def _key(kind: str, device: str, texts: Sequence[str], sizes: Sequence[int] = ()) -> str:
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]
    return " ".join([kind, device, "x".join(map(str, sizes)), digest])
