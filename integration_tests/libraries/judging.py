"""Differences between a library's program and the same when it is compiled.

In: a workload. Out: a row. Invariant: results, gradients, parameters, buffers, optimizer state and
random state are compared after each of `STEPS` steps, to the bit or as near as eager is to itself
with its weights moved by a few roundings.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import os
import re
import statistics
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

import flambeau
from flambeau.switching.install import is_installed
from integration_tests.campaign.nearness import far
from integration_tests.libraries.workload import Compile, Program, Workload
from integration_tests.sweep.judging import Found, difference, flatten, seed_all

Row = dict[str, Any]
DISABLED = "TORCH_COMPILE_DISABLE"
STEPS = 3
NUDGES = 2
ROUNDINGS = 4  # by which a weight is moved
OFF = 1e-5  # what a program without weights may be off by, beside 1 or the value
STEADY_ROUNDS, BLOCK = 20, 8
#: steps, or seconds, without a new graph or a verdict after which a program is steady, and the most
#: seconds to that: which form is faster is tried in up to a thousand calls, in turns of `BLOCK`
CALM_STEPS, CALM_SECONDS, SETTLING_SECONDS = 1000, 6.0, 60.0


def judge(workload: Workload) -> Row:
    """Run both ways and compare."""
    row: Row = {"versions": _versions(workload), "installs": workload.installs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if workload.installs:  # before its libraries are imported, as a program does
            flambeau.install()
        try:
            with _never_compiled():
                eager, wanted, first = _run(workload, _as_it_is)
                moved = [_run(workload, _as_it_is, nudge)[1] for nudge in range(1, NUDGES + 1)]
        except ModuleNotFoundError as error:
            return row | {"status": "not installed", "detail": str(error)}
        except Exception:
            return row | {"status": "not run", "detail": _short_traceback()}
        row["eager_first_s"] = round(first, 2)
        compiled: Compile = _as_it_is if workload.installs else flambeau.compile
        try:
            ours, found, first = _run(workload, compiled, counts := [])
        except Exception:
            return row | _reported() | {"status": "crashed", "detail": _short_traceback()}
        row |= {"first_s": round(first, 2), "graphs": counts[0], "graphs_3": counts[-1]}
        row["detail"] = _differing(wanted, found, moved)
        if not row["detail"]:
            row |= _steady(eager, ours)
        elif not _repeats(workload, wanted):
            return row | {"status": "not run", "detail": "eager does not give the same twice"}
    row |= _reported()
    row["status"] = _status(row)
    return row


def _status(row: Row) -> str:
    if row["detail"]:
        return "wrong"
    if row["faults"]:
        return "fault"
    if not row["graphs_3"]:
        return "eager"
    return "breaks" if row["breaks"] or row["fallbacks"] else "right"


def _as_it_is(fn: Any = None, **_: Any) -> Any:
    return fn if fn is not None else _as_it_is


@contextlib.contextmanager
def _never_compiled() -> Iterator[None]:
    """What calls `torch.compile` runs as it is."""
    if is_installed():
        before = os.environ.get(DISABLED)
        os.environ[DISABLED] = "1"
        try:
            yield
        finally:
            os.environ.pop(DISABLED) if before is None else os.environ.update({DISABLED: before})
        return
    with (
        mock.patch.object(torch, "compile", _as_it_is),
        mock.patch.object(torch.nn.Module, "compile", lambda self, *args, **kwargs: None),
    ):
        yield


def _run(
    workload: Workload, compiled: Compile, extra: int | list[int] = 0
) -> tuple[Program, list[Found], float]:
    """The program after `STEPS` steps, what was seen after each, seconds of the first. extra: a
    list takes the number of graphs after each step; a number draws how the weights are moved."""
    seed_all()
    program = workload.build(compiled)
    if isinstance(extra, int) and extra:
        _nudge(program, extra)
    seen, first = [], 0.0
    for number in range(STEPS):
        torch.manual_seed(number)
        started = time.perf_counter()
        result = program.step()
        first = first or time.perf_counter() - started
        seen.append(_observe(program, result))
        if isinstance(extra, list):
            extra.append(flambeau.report().graphs)
    return program, seen, first


def _nudge(program: Program, draw: int) -> None:
    generator = torch.Generator().manual_seed(draw)
    with torch.no_grad():
        for module in program.kept:
            for parameter in module.parameters() if isinstance(module, torch.nn.Module) else ():
                if parameter.is_floating_point() and type(parameter) is torch.nn.Parameter:
                    noise = torch.randn(parameter.shape, generator=generator)
                    roundings = ROUNDINGS * torch.finfo(parameter.dtype).eps
                    parameter.mul_((1 + roundings * noise).to(parameter.dtype))


def _observe(program: Program, result: Any) -> Found:
    """All that a step can be judged by, detached and copied."""
    found: Found = {}
    flatten(result, "result", found, set())
    for number, kept in enumerate(program.kept):
        path = f"{type(kept).__name__} {number}"
        if isinstance(kept, torch.nn.Module):
            for name, parameter in kept.named_parameters():
                found[f"{path}.{name}"] = parameter
                found[f"{path}.{name}.grad"] = parameter.grad
            found |= {f"{path}.{name}": buffer for name, buffer in kept.named_buffers()}
        elif isinstance(kept, torch.optim.Optimizer):
            flatten(kept.state_dict(), path, found, set())
        else:
            flatten(kept, path, found, set())
    for key, leaf in found.items():
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach()
            leaf = leaf.dequantize() if leaf.is_quantized else leaf
            found[key] = (leaf.to_dense() if leaf.layout != torch.strided else leaf).clone()
    found["random state of torch"] = torch.get_rng_state()
    found["gradients are recorded"] = torch.is_grad_enabled()
    return found


def _differing(
    wanted: list[Found], found: list[Found], moved: list[list[Found]], limit: int = 3
) -> str:
    """The first places that differ by more than rounding, in words; nothing if there is none."""
    for step, (want, got) in enumerate(zip(wanted, found, strict=True)):
        others = [each[step] for each in moved]
        texts = []
        if list(want) != list(got):
            odd = [key for key in [*want, *got] if (key in want) != (key in got)]
            texts.append(f"structure: {odd[:4] or 'order'}")
        for key in want.keys() & got.keys():
            if difference({key: got[key]}, {key: want[key]}) is None:
                continue
            if (told := _far(key, want[key], got[key], [o.get(key) for o in others])) is not None:
                texts.append(told)
        if texts:
            return f"step {step}: {len(texts)} differ: " + "; ".join(sorted(texts)[:limit])
    return ""


def _far(key: str, want: Any, got: Any, others: list[Any]) -> str | None:
    """What differs, unless rounding explains it."""
    text = difference({key: got}, {key: want})
    if isinstance(want, float) and isinstance(got, float):
        want, got = torch.tensor(want), torch.tensor(got)
        others = [torch.tensor(o) for o in others if isinstance(o, float)]
    both = isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor)
    if both and want.dtype == got.dtype and want.shape == got.shape:
        others = [o for o in others if isinstance(o, torch.Tensor)]
        if want.is_floating_point() or want.is_complex():
            told = far(want, got, None, others, off=OFF)
            return None if told is None else f"{key}: {told}"
        if any(o.shape != want.shape or not torch.equal(o, want) for o in others):
            return None
    elif any(difference({key: o}, {key: want}) is not None for o in others):
        return None  # of a rounding, too
    return text


def _repeats(workload: Workload, wanted: list[Found]) -> bool:
    with _never_compiled():
        again = _run(workload, _as_it_is)[1]
    return not _differing(wanted, again, [])


def _steady(eager: Program, ours: Program) -> Row:
    """Median seconds of processor time of a step of each, in turns, once nothing is compiled or
    decided any more, and graphs at the end."""
    gc.collect()
    number, seen, begun = STEPS, _decided(), time.perf_counter()
    calm_step, calm = number, begun
    while number - calm_step < CALM_STEPS and time.perf_counter() - calm < CALM_SECONDS:
        if time.perf_counter() - begun > SETTLING_SECONDS:
            break
        _block(eager, ours, number, BLOCK)
        number, before, seen = number + BLOCK, seen, _decided()
        if seen != before:
            calm_step, calm = number, time.perf_counter()
    rounds = [_block(eager, ours, number + n, 1) for n in range(STEADY_ROUNDS)]
    eager_s, ours_s = map(statistics.median, zip(*rounds, strict=True))
    times = {"eager_ms": round(eager_s * 1e3, 3), "ms": round(ours_s * 1e3, 3)}
    return {**times, "graphs_end": _decided()[0]}


def _decided() -> tuple[int, int]:
    """How much has been compiled, and how often eager was found to be faster."""
    report = flambeau.report()
    return report.graphs, len(report.settled)


def _block(eager: Program, ours: Program, seed: int, steps: int) -> tuple[float, float]:
    """Seconds of some steps of each from the same random numbers, in which the process computes:
    its one thread at a time, whatever else the machine does."""
    spent = []
    for program in (eager, ours):
        with _never_compiled() if program is eager else contextlib.nullcontext():
            begun = time.process_time()
            for number in range(seed, seed + steps):
                torch.manual_seed(number)
                program.step()
            spent.append(time.process_time() - begun)
    return spent[0], spent[1]


def _reported() -> Row:
    report = flambeau.report()
    ids = Counter(match for text in report.breaks for match in re.findall(r"FB\d{4}", text)[:1])
    return {
        "breaks": dict(ids.most_common()),
        "break_texts": [text[:400] for text in report.breaks],
        "fallbacks": [str(failure)[:400] for failure in report.fallbacks],
        "faults": [text[:600] for text in report.internal_errors],
        "settled": [text[:300] for text in report.settled],
        "program_errors": [str(failure)[:300] for failure in report.program_errors],
    }


def _versions(workload: Workload) -> dict[str, str]:
    found = {}
    for name in workload.distributions:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _short_traceback() -> str:
    return " | ".join(traceback.format_exc().strip().splitlines()[-8:])[-1200:]
