"""Autotuning of C++ code variants.

In: a program without a GPU in it. Out: the same, and the compile's `forms` and `choices`.
Invariant: a form is taken only where it was measured to be faster, at the loop's own sizes and with
empty caches; nothing is measured with `deterministic`, whose sums are those of the rules, or while
bisecting. The outcome is kept by the texts of the kernels that raced.

Autotuning of matrix product libraries on this processor. In: options. Out: yes or no, by a
product's sizes. Invariant: measured once for a version of torch, a processor and a number of
threads, and kept on disk; where oneDNN is missing or switched off, or the disk cannot keep the
answer, torch's own choice stands or it holds for this process alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

import torch

from flambeau_inductor._torch_compat import onednn_linear
from flambeau_inductor.autotune.benchmark import Budget, Candidate, CpuClock, Tuner, stand_in
from flambeau_inductor.cache import open_values
from flambeau_inductor.codegen.cpp import unit
from flambeau_inductor.codegen.cpp.analysis.alternatives import alternatives
from flambeau_inductor.codegen.cpp.analysis.variant import RULES, Form
from flambeau_inductor.codegen.cpp.toolchain import Toolchain, find_toolchain
from flambeau_inductor.codegen.cpp.unit import TranslationUnit, anonymous, from_starts, prepared
from flambeau_inductor.compile_state import Compilation
from flambeau_inductor.errors import CompilerFailed
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Layout, Program, RunLoop
from flambeau_inductor.ir.steps import loops_of, storage_bytes, touched
from flambeau_inductor.lowering.context import LibraryChoices, Sizes
from flambeau_inductor.options import Options, Products
from flambeau_inductor.runtime.artifact import load_kernels
from flambeau_inductor.tuning import host_tuning

RULED = "as_ruled"


@dataclass(slots=True)
class Chosen:
    """`forms`: of loops whose kernels are not as the rules say; `words`: of all considered."""

    forms: dict[str, Form] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Race:
    """A loop (and others that are like it), and the forms that its kernel may have."""

    loop: Loop
    forms: Mapping[str, Form]
    source: TranslationUnit
    size: int
    key: str
    names: tuple[str, ...]


def choose_forms(
    loops: Sequence[Loop],
    layouts: Mapping[str, Layout],
    tuner: Tuner,
    toolchain: Toolchain,
    threads: int | None = None,
) -> Chosen:
    """Race the forms of each loop over much memory, those over the most first."""
    chosen = Chosen()
    races = _races(loops, layouts, toolchain, threads)
    known = [race for race in races if tuner.kept(race.key, race.forms) is not None]
    new = [race for race in races if race not in known]
    for race in known:
        _take(chosen, race, tuner, lambda: ())
    workers = max(1, os.cpu_count() or 1)
    for start in range(0, len(new), workers):
        if not tuner.budget.enough:
            late = (name for race in new[start:] for name in race.names)
            chosen.words |= dict.fromkeys(late, f"{RULED}: no time was left to measure")
            break
        some = new[start : start + workers]
        with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
            for race, path in zip(some, _built(some, tuner, toolchain, folder), strict=True):
                if isinstance(path, str):
                    why = f"{RULED}: the others cannot be built: {path}"
                    chosen.words |= dict.fromkeys(race.names, why)
                else:
                    _take(chosen, race, tuner, partial(_candidates, race, layouts, path))
    return chosen


def _built(
    races: Sequence[_Race], tuner: Tuner, toolchain: Toolchain, folder: str
) -> list[Path | str]:
    """The libraries of some races, built side by side, or why one has none."""

    def built(race: _Race) -> Path | str:
        try:
            return toolchain.build(race.source.text, Path(folder))
        except (CompilerFailed, OSError) as error:
            return str(error)

    with tuner.budget.spending(), ThreadPoolExecutor(len(races)) as pool:
        return tuner.budget.making(lambda: list(pool.map(built, races)))


def _races(
    loops: Sequence[Loop], layouts: Mapping[str, Layout], toolchain: Toolchain, threads: int | None
) -> list[_Race]:
    """One race for all loops that are alike, those over the most memory first."""
    found: dict[str, _Race] = {}
    at_once, lanes = threads or torch.get_num_threads(), toolchain.vector_bytes
    for loop in loops:
        sizes = [storage_bytes(layouts[name]) for name in frozenset.union(*touched(RunLoop(loop)))]
        size = sum(n for n in sizes if isinstance(n, int))
        if size < host_tuning().raced_bytes or not all(isinstance(n, int) for n in sizes):
            continue
        planned = prepared(from_starts(anonymous(loop)[0])[0])
        forms = {RULED: RULES} | alternatives(planned, lanes)
        copies = [replace(loop, name=name, origins=()) for name in forms]
        source = unit.generate(
            copies, lambda name: layouts[name].dtype, lanes, threads, forms=forms
        )
        numbers = {name: source.entries[name].number for name in forms}
        firsts = {number: name for name, number in reversed(numbers.items())}
        forms = {name: form for name, form in forms.items() if firsts[numbers[name]] == name}
        if len(forms) == 1:
            continue  # they would all be one kernel
        text = "\0".join((source.text, toolchain.identity))
        digest = hashlib.sha256(text.encode()).hexdigest()[:32]
        key = f"loop {digest}, {size} bytes, {at_once} threads"
        alike = found.get(key)
        names = (*(alike.names if alike else ()), loop.name)
        found[key] = _Race(loop, forms, source, size, key, names)
    return sorted(found.values(), key=lambda race: -race.size)


def _candidates(race: _Race, layouts: Mapping[str, Layout], path: Path) -> Sequence[Candidate]:
    kernels = load_kernels(path, race.source.kernels)
    names = frozenset.union(*touched(RunLoop(race.loop)))
    tensors = {name: stand_in(layouts[name]) for name in names}
    made = []
    for name in race.forms:
        entry = race.source.entries[name]
        addresses = [
            tensors[buffer].data_ptr() + offset
            for buffer, offset in zip(entry.buffers, entry.offsets, strict=True)
        ]

        def run(number: int = entry.number, at: Sequence[int] = addresses) -> object:
            return kernels[number](*at), tensors  # which live as long as somebody runs this

        made.append(Candidate(name, run))
    return made


def _take(
    chosen: Chosen, race: _Race, tuner: Tuner, candidates: Callable[[], Sequence[Candidate]]
) -> None:
    winner = tuner.choose(race.key, list(race.forms), candidates)
    for name in race.names if winner != RULED else ():
        chosen.forms[name] = race.forms[winner]
    seconds = tuner.seconds(race.key)
    others = {name: n for name, n in seconds.items() if name != RULED}
    words = f"{winner} of {', '.join(race.forms)}"
    if not seconds:
        words += ": no time was left to measure"
    if RULED in seconds and others:
        best = winner if winner != RULED else min(others, key=others.__getitem__)
        words += f": {best} takes {seconds[best] / seconds[RULED]:.2f} of the time of {RULED}"
    chosen.words |= dict.fromkeys(race.names, words)


def select_variants(work: Compilation, program: Program) -> tuple[Program, int]:
    """Race the forms of the loops that become C++ kernels."""
    options = work.options
    layouts = {b.name: b.layout for b in program.buffers}
    values = open_values(options.cache_dir, "autotune")
    budget = work.budget or Budget(options.autotune_seconds)
    tuner = Tuner(values, CpuClock(), budget)
    toolchain = find_toolchain(options.compiler, options.processor)
    made = choose_forms(loops_of(program), layouts, tuner, toolchain, options.threads)
    work.forms, work.choices = made.forms, made.words
    work.faults += values.faults
    return program, 0


BLAS, ONEDNN = "blas", "onednn"

EPILOGUES = frozenset({"hardswish", "leaky_relu"})
"""Functions that oneDNN applies to what it computes sooner than a loop of their own would. Its
`gelu` and `swish` take as long as such a loop, or longer."""

SIZE = 256
"""Rows, columns and terms of the product that is measured."""

SECONDS = 0.5
"""Most that the measurement may take."""


def library_choices(options: Options, budget: Budget | None = None) -> LibraryChoices:
    """The choices of lowering. With `max_autotune` products are measured at their own sizes, within
    `budget` (the options' own where none is given)."""
    wanted, cache_dir, host = options.products, options.cache_dir, host_tuning()
    if not options.max_autotune or wanted != "measured":
        alone = torch.get_num_threads() == 1
        least = host.onednn_operations_alone if alone else host.onednn_operations
        return LibraryChoices(
            lambda sizes: onednn_products(wanted, cache_dir), least, EPILOGUES.__contains__
        )
    values = open_values(cache_dir, "autotune")
    tuner = Tuner(values, CpuClock(1), budget or Budget(options.autotune_seconds))

    def measured(sizes: Sizes) -> bool:
        if onednn_linear() is None:
            return False
        key = f"float32 product {sizes}, {torch.get_num_threads()} threads"
        return tuner.choose(key, (BLAS, ONEDNN), lambda: _product_libraries(sizes)) == ONEDNN

    return LibraryChoices(measured, host.onednn_operations_raced, EPILOGUES.__contains__)


def onednn_products(wanted: Products, cache_dir: str | None) -> bool:
    """Whether large products of float32 matrices on a CPU go to oneDNN."""
    if wanted == BLAS or onednn_linear() is None:
        return False
    return wanted == ONEDNN or _measured(cache_dir, torch.get_num_threads()) == ONEDNN


@lru_cache(maxsize=8)
def _measured(cache_dir: str | None, threads: int) -> str:
    tuner = Tuner(open_values(cache_dir, "autotune"), CpuClock(1), Budget(SECONDS))
    sizes = (SIZE, SIZE, SIZE)
    key = f"float32 products, {threads} threads"
    return tuner.choose(key, (BLAS, ONEDNN), lambda: _product_libraries(sizes))


def _product_libraries(sizes: Sizes) -> Sequence[Candidate]:
    linear = onednn_linear()
    assert linear is not None
    rows, terms, columns = sizes
    a, b, out = (
        torch.full(shape, 0.5) for shape in ((rows, terms), (columns, terms), (rows, columns))
    )

    def blas() -> object:
        with torch.no_grad():
            return torch.mm(a, b.t(), out=out)

    def onednn() -> object:
        with torch.no_grad():
            return linear(a, b, None, "none", [], "")

    return (Candidate(BLAS, blas), Candidate(ONEDNN, onednn))
