"""Autotuning of C++ code variants.

In: a program without a GPU in it. Out: the same, and the compile's `forms` and `choices`.
Invariant: a form is taken only where it was measured to be faster, at the loop's own sizes and with
empty caches; nothing is measured with `deterministic`, whose sums are those of the rules, or while
bisecting. The outcome is kept by the texts of the kernels that raced.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from flambeau_inductor.autotune.benchmark import Budget, Candidate, CpuClock, stand_in
from flambeau_inductor.autotune.kept_choices import Tuner
from flambeau_inductor.cache import open_values
from flambeau_inductor.codegen import cpp
from flambeau_inductor.codegen.cpp.analysis.alternatives import alternatives
from flambeau_inductor.codegen.cpp.analysis.variant import RULES, Form
from flambeau_inductor.codegen.cpp.unit import anonymous, from_starts, prepared
from flambeau_inductor.compilation import Compilation
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.ir.program import Layout, Program, RunLoop
from flambeau_inductor.ir.steps import loops_of, storage_bytes, touched
from flambeau_inductor.runtime.artifact import load_kernels
from flambeau_inductor.tuning import host_tuning

RULED = "as_ruled"


@dataclass(slots=True)
class Chosen:
    """`forms`: of loops whose kernels are not as the rules say; `told`: of all that were
    considered."""

    forms: dict[str, Form] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Race:
    """A loop (and others that are like it), and the forms that its kernel may have."""

    loop: Loop
    forms: Mapping[str, Form]
    source: cpp.TranslationUnit
    size: int
    key: str
    names: tuple[str, ...]


def choose_forms(
    loops: Sequence[Loop],
    layouts: Mapping[str, Layout],
    tuner: Tuner,
    toolchain: cpp.Toolchain,
    threads: int | None = None,
) -> Chosen:
    """Race the forms of each loop over much memory, those over the most first."""
    chosen = Chosen()
    races = _races(loops, layouts, toolchain, threads)
    known = [race for race in races if tuner.kept(race.key, race.forms) is not None]
    new = [race for race in races if race not in known]
    for race in known:
        _take(chosen, race, tuner.choose(race.key, list(race.forms), lambda: ()), tuner)
    workers = max(1, os.cpu_count() or 1)
    for start in range(0, len(new), workers):
        some = new[start : start + workers]
        if not tuner.budget.enough:
            for race in new[start:]:
                _report_choice(chosen, race, f"{RULED}: no time was left to measure")
            break
        _raced(chosen, some, layouts, tuner, toolchain)
    return chosen


def _raced(
    chosen: Chosen,
    races: Sequence[_Race],
    layouts: Mapping[str, Layout],
    tuner: Tuner,
    toolchain: cpp.Toolchain,
) -> None:
    """Build the kernels of some loops side by side, then measure one loop after the other."""
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:

        def built(race: _Race) -> Path | str:
            try:
                return cpp.build(toolchain, race.source.text, Path(folder))
            except (cpp.CompilerFailed, OSError) as error:
                return str(error)

        with tuner.budget.spending(), ThreadPoolExecutor(len(races)) as pool:
            paths = tuner.budget.making(lambda: list(pool.map(built, races)))
        for race, path in zip(races, paths, strict=True):
            if isinstance(path, str):
                _report_choice(chosen, race, f"{RULED}: the others cannot be built: {path}")
                continue
            made = partial(_candidates, race, layouts, path)
            winner = tuner.choose(race.key, list(race.forms), made)
            _take(chosen, race, winner, tuner)


def _races(
    loops: Sequence[Loop],
    layouts: Mapping[str, Layout],
    toolchain: cpp.Toolchain,
    threads: int | None,
) -> list[_Race]:
    """One race for all loops that are alike, those over the most memory first."""
    found: dict[str, _Race] = {}
    at_once = threads or torch.get_num_threads()
    for loop in loops:
        sizes = [storage_bytes(layouts[name]) for name in _buffers(loop)]
        size = sum(n for n in sizes if isinstance(n, int))
        if size < host_tuning().raced_bytes or not all(isinstance(n, int) for n in sizes):
            continue
        planned = prepared(from_starts(anonymous(loop)[0])[0])
        forms = {RULED: RULES} | alternatives(planned, toolchain.vector_bytes)
        source = _source(loop, forms, layouts, toolchain, threads)
        numbers = {name: source.entries[name].number for name in forms}
        firsts = {number: name for name, number in reversed(numbers.items())}
        forms = {name: form for name, form in forms.items() if firsts[numbers[name]] == name}
        if len(forms) == 1:
            continue  # they would all be one kernel
        asked = "\0".join((source.text, toolchain.identity))
        digest = hashlib.sha256(asked.encode()).hexdigest()[:32]
        key = f"loop {digest}, {size} bytes, {at_once} threads"
        alike = found.get(key)
        names = (*(alike.names if alike else ()), loop.name)
        found[key] = _Race(loop, forms, source, size, key, names)
    return sorted(found.values(), key=lambda race: -race.size)


def _buffers(loop: Loop) -> set[str]:
    reads, writes = touched(RunLoop(loop))
    return reads | writes


def _source(
    loop: Loop,
    forms: Mapping[str, Form],
    layouts: Mapping[str, Layout],
    toolchain: cpp.Toolchain,
    threads: int | None,
) -> cpp.TranslationUnit:
    copies = [replace(loop, name=name, origins=()) for name in forms]
    return cpp.generate(
        copies, lambda name: layouts[name].dtype, toolchain.vector_bytes, threads, forms=forms
    )


def _candidates(race: _Race, layouts: Mapping[str, Layout], path: Path) -> Sequence[Candidate]:
    kernels = load_kernels(path, race.source.kernels)
    tensors = {name: stand_in(layouts[name]) for name in _buffers(race.loop)}
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


def _take(chosen: Chosen, race: _Race, winner: str, tuner: Tuner) -> None:
    for name in race.names if winner != RULED else ():
        chosen.forms[name] = race.forms[winner]
    seconds = tuner.seconds(race.key)
    others = {name: n for name, n in seconds.items() if name != RULED}
    told = f"{winner} of {', '.join(race.forms)}"
    if not seconds:
        told += ": no time was left to measure"
    if RULED in seconds and others:
        best = winner if winner != RULED else min(others, key=others.__getitem__)
        told += f": {best} takes {seconds[best] / seconds[RULED]:.2f} of the time of {RULED}"
    _report_choice(chosen, race, told)


def _report_choice(chosen: Chosen, race: _Race, what: str) -> None:
    chosen.told |= dict.fromkeys(race.names, what)


def select_variants(work: Compilation, program: Program) -> tuple[Program, int]:
    """Race the forms of the loops that become C++ kernels."""
    options = work.options
    layouts = {b.name: b.layout for b in program.buffers}
    values = open_values(options.cache_dir, "autotune")
    budget = work.budget or Budget(options.autotune_seconds)
    tuner = Tuner(values, CpuClock(), budget)
    toolchain = cpp.find_toolchain(options.compiler)
    made = choose_forms(loops_of(program), layouts, tuner, toolchain, options.threads)
    work.forms, work.choices = made.forms, made.told
    work.faults += values.faults
    return program, 0
