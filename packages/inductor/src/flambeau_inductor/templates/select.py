"""Which kernels of a program are taken from templates, by measurement.

In: a scheduled program on a GPU and a `Tuner`. Out: `Selected`: the program with some library calls
and the loops behind them replaced, and the kernels of its loops that are not written as usual.
Invariant: a replaced call computes the same; where nothing measured faster, nothing changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import torch

from flambeau_inductor.autotune import Candidate, Tuner
from flambeau_inductor.codegen.triton.errors import TritonUnsupported
from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.codegen.triton.tiling import choose
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Extern, Program, RunLoop
from flambeau_inductor.ir.steps import storage_bytes
from flambeau_inductor.runtime.gpu_launch import Library
from flambeau_inductor.templates import known
from flambeau_inductor.templates.attention import blocks_for
from flambeau_inductor.templates.attentions import FoundAttention, find_attention, touching
from flambeau_inductor.templates.backwards import FoundBackward, find_backward
from flambeau_inductor.templates.bench import Bench, Run, in_order
from flambeau_inductor.templates.described import operands_of
from flambeau_inductor.templates.flash import attention_kernel
from flambeau_inductor.templates.flash_backward import backward_blocks
from flambeau_inductor.templates.matmul import product_kernel
from flambeau_inductor.templates.parts import Split, split_product
from flambeau_inductor.templates.products import Found, find, fused_steps
from flambeau_inductor.templates.tiles import Tile, candidates
from flambeau_inductor.templates.tilings import alternatives

LIBRARY = "library"
LEAST_POINTS = 1 << 20
"""Loops over fewer points are bound by their launch: no tiling makes them faster."""


@dataclass(slots=True)
class Selected:
    """`kernels` by the names of the loops that they compute; `trusted` as `select` is told."""

    program: Program
    library: Library | None = None
    trusted: bool = False
    kernels: dict[str, TritonKernel] = field(default_factory=dict)
    chosen: dict[str, str] = field(default_factory=dict)


def select(
    program: Program,
    tuner: Tuner,
    device: str,
    *,
    described: bool = False,
    library: Library | None = None,
    trusted: bool = False,
) -> Selected:
    """Race templates against library calls, and tilings against each other.

    `device` says what the measurements hold for (name and capability), `described` whether it has
    a tensor memory accelerator. `library` launches, without it nothing is described. `trusted`: it
    is one of those for which `known` says what is taken without measurement. That comes first in
    each race, so that it is taken unless another way was measured to be faster.
    """
    selected = Selected(program, library, trusted)
    described = described and library is not None
    done: set[str] = set()
    while True:
        found = next((f for f in find(selected.program, tf32()) if f.result not in done), None)
        if found is None:
            break
        done.add(found.result)
        _product(selected, found, tuner, device, described)
    while True:
        calls = [f for f in find_attention(selected.program) if f.result not in done]
        if not calls:
            break
        done.add(calls[0].result)
        _attention(selected, calls[0], tuner, device, described)
    while True:
        backwards = [f for f in find_backward(selected.program) if f.result not in done]
        if not backwards:
            break
        done.add(backwards[0].result)
        _backward(selected, backwards[0], tuner, device, described)
    for step in selected.program.steps:
        if isinstance(step, RunLoop) and step.loop.name not in selected.kernels:
            _tiling(selected, step.loop, tuner, device)
    return selected


def tf32() -> bool:
    """Whether the user allows products of float32 to be computed as TF32."""
    return torch.get_float32_matmul_precision() != "highest"


def facts(program: Program) -> tuple[dict[str, torch.dtype], dict[str, int]]:
    """Dtypes of all buffers, and how many elements an index of theirs may span."""
    dtypes = {b.name: b.layout.dtype for b in program.buffers}
    numels: dict[str, int] = {}
    for buffer in program.buffers:
        size = storage_bytes(buffer.layout)
        if isinstance(size, int):  # no product and no tiling here takes a buffer of an open size
            numels[buffer.name] = size // buffer.layout.dtype.itemsize
    return dtypes, numels


def _product(selected: Selected, found: Found, tuner: Tuner, device: str, described: bool) -> None:
    program = selected.program
    dtypes, numels = facts(program)
    batch, m, n, k = found.product.sizes
    window = found.product.window
    runs = window.runs if window is not None else 0
    item = found.product.dtype.itemsize
    some = candidates(m, n, k, batch, item, described=described, runs=runs)
    tiles = {t.name: t for t in some if not t.described or operands_of(found.product, t)}
    ways: dict[str, tuple[TritonKernel, ...] | Split] = {}
    for name, tile in tiles.items():
        try:
            ways[name] = _way(found, tile, program, f"{found.result}_{name}")
        except TritonUnsupported:  # the loop behind it has no Triton form: nothing can be fused
            return
    if not ways:
        return
    key = _key("product", device, [_text(way) for way in ways.values()], found.product.sizes)

    def racing() -> Sequence[Candidate]:
        layouts = {b.name: b.layout for b in program.buffers}
        for way in ways.values():
            if isinstance(way, Split):
                layouts[way.buffer.name] = way.buffer.layout
        bench = Bench(layouts, tuner.budget, selected.library)
        kernels = [kernel for way in ways.values() for kernel in _kernels(way)]
        call = program.steps[found.call]
        assert isinstance(call, Extern)
        library: list[Run] = [bench.call(call)]
        if found.reader is not None:
            reader = program.steps[found.reader]
            assert isinstance(reader, RunLoop)
            own = generate(replace(reader.loop, name="reader"), dtypes, numels)
            kernels.append(own)
        runs = bench.kernels(kernels)
        if found.reader is not None:
            library.append(runs["reader"])
        rows = [Candidate(LIBRARY, in_order(*library))]
        for name, way in ways.items():
            rows.append(Candidate(name, in_order(*(runs[k.name] for k in _kernels(way)))))
        return rows

    winner = tuner.choose(key, [LIBRARY, *ways], racing)
    selected.chosen[found.result] = winner
    if winner == LIBRARY:
        return
    way = ways[winner]
    loops: tuple[Loop, ...]
    if isinstance(way, Split):
        loops = way.loops
        selected.program = way.within(fused_steps(program, found, loops))
        selected.kernels[loops[0].name] = way.kernels[0]
        return
    kernel = way[0]
    if found.reader is None:
        read = [name for name in kernel.arguments if name != found.result]
        points = prod(found.product.outer)
        loop = touching(kernel.name, read, [found.result], points, found.product.dtype)
    else:
        loop = replace(found.epilogue.loop, name=kernel.name)
    selected.program = fused_steps(program, found, (loop,))
    selected.kernels[loop.name] = kernel


def _attention(
    selected: Selected, found: FoundAttention, tuner: Tuner, device: str, described: bool
) -> None:
    """The template's attention in place of the library's, if it is faster."""
    program = selected.program
    dtypes, numels = facts(program)
    kernels = {
        blocks.name: attention_kernel(
            found.attention, blocks, dtypes, numels, f"{found.result}_{blocks.name}"
        )
        for blocks in blocks_for(found.attention, described)
    }

    def racing() -> Sequence[Candidate]:
        layouts = {b.name: b.layout for b in program.buffers}
        bench = Bench(layouts, tuner.budget, selected.library)
        call = program.steps[found.call]
        assert isinstance(call, Extern)
        runs = bench.kernels(list(kernels.values()))
        rows = {name: Candidate(name, runs[k.name]) for name, k in kernels.items()}
        rows[LIBRARY] = Candidate(LIBRARY, bench.call(call))
        return [rows[name] for name in names]

    texts = [_text((kernel,)) for kernel in kernels.values()]
    key = _key("attention", device, texts, found.attention.sizes)
    template = selected.trusted and known.better(program, found.call, found.attention)
    names = [*kernels, LIBRARY] if template else [LIBRARY, *kernels]
    winner = tuner.choose(key, names, racing)
    selected.chosen[found.result] = winner
    if winner != LIBRARY:
        with_attention(selected, found, kernels[winner])


def with_attention(selected: Selected, found: FoundAttention, kernel: TritonKernel) -> None:
    """Put `kernel` in the place of a call."""
    loop = found.told(kernel.name, found.attention.dtype)
    selected.program = found.within(selected.program, loop)
    selected.kernels[kernel.name] = kernel


def _backward(
    selected: Selected, found: FoundBackward, tuner: Tuner, device: str, described: bool
) -> None:
    """The template's gradients of attention in place of the library's, if that is faster."""
    program = selected.program
    dtypes, numels = facts(program)
    ways: dict[str, tuple[TritonKernel, ...]] = {}
    for pair in backward_blocks(found.backward.forward, described):
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
    template = selected.trusted and known.better(program, found.call, found.backward.forward)
    names = [*ways, LIBRARY] if template else [LIBRARY, *ways]
    winner = tuner.choose(key, names, racing)
    selected.chosen[found.result] = winner
    if winner != LIBRARY:
        with_backward(selected, found, ways[winner])


def with_backward(
    selected: Selected, found: FoundBackward, kernels: Sequence[TritonKernel]
) -> None:
    """Put `kernels` in the place of a call."""
    loops = found.told(kernels)
    selected.program = found.within(selected.program, loops)
    for loop, kernel in zip(loops, kernels, strict=True):
        selected.kernels[loop.name] = kernel


def _way(
    found: Found,
    tile: Tile,
    program: Program,
    name: str,
) -> tuple[TritonKernel, ...] | Split:
    dtypes, numels = facts(program)
    if tile.parts > 1:
        device = next(b.layout.device for b in program.buffers if b.name == found.result)
        return split_product(found, tile, dtypes, numels, name, device)
    return (product_kernel(found.product, found.epilogue, tile, dtypes, numels, name),)


def _kernels(way: tuple[TritonKernel, ...] | Split) -> tuple[TritonKernel, ...]:
    return way.kernels if isinstance(way, Split) else way


def _text(way: tuple[TritonKernel, ...] | Split) -> str:
    """What decides how fast it is, without names."""
    return "\n".join(
        kernel.source.replace(kernel.name, "kernel") + repr((kernel.constants, kernel.programs))
        for kernel in _kernels(way)
    )


def _key(kind: str, device: str, texts: Sequence[str], sizes: Sequence[int] = ()) -> str:
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]
    return " ".join([kind, device, "x".join(map(str, sizes)), digest])


def _tiling(selected: Selected, loop: Loop, tuner: Tuner, device: str) -> None:
    """Another tiling for a loop over much memory, if one is faster."""
    dtypes, numels = facts(selected.program)
    try:
        first = choose(loop)
        tilings = {"model": first} | alternatives(loop, first, LEAST_POINTS)
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
