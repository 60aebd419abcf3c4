"""Programs under a trace, and a folder of what is text of them.

In: names of programs. Out: `FOLDER/<group>.<program>/<stage>`, normalised. Invariant: a program
that cannot be run leaves a file `error` with the reason, and the others go on.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import multiprocessing
import os
import re
import shutil
import stat
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import flambeau
from tools.replay import programs

#: what is kept of a trace; pictures, binaries and files with times in them are not
KEPT = re.compile(
    r".*(\.txt|joint\.py|forward\.py|backward\.py|inference\.py|_kernels\.(cpp|py)|_wrapper\.py)$"
)
#: what every program would load for itself
_OFTEN_NEEDED = (
    "flambeau.backends", "flambeau_capture.frame.compiler", "flambeau_aot.frontends",
    "flambeau_inductor.compile", "flambeau_prims.decomp", "sympy", "torch.distributed.tensor",
    "torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes",
)  # fmt: skip
_ADDRESS = re.compile(r"0x[0-9a-f]{7,}")
_FOLDERS = re.compile(r"(?<=['\" ])/(?:[^'\" \n/]+/)+")
#: names that are counted: those of buffers, loops, values, nodes, compiled functions
_COUNTED = re.compile(r"\b(\w*_|buf|in|loop|kernel|call|size|tmp|v|x|r|p|a|s|t|m|n|u|i|z|k)(\d+)\b")
_TEXT_OF_CODE = re.compile(r"_(kernels|wrapper)\.(cpp|py)$")


def write(folder: Path, chosen: list[str]) -> None:
    """Every program of `chosen`, names or groups; all if it is empty. Each is alone in a copy of
    this process, which has compiled nothing: what ran before it is never to be seen."""
    torch.set_num_threads(1)
    for module in _OFTEN_NEEDED:
        with contextlib.suppress(ModuleNotFoundError):  # at another commit: each loads it then
            importlib.import_module(module)
    with (
        tempfile.TemporaryDirectory() as scratch,
        multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool,
    ):
        options = {"disk_cache": False, "compiler": _quick_compiler(Path(scratch))}
        one = functools.partial(_write_one, folder, Path(scratch), options)
        for line in pool.imap(one, _chosen(chosen), chunksize=1):
            print(line, flush=True)


def _write_one(folder: Path, scratch: Path, options: dict[str, Any], named: tuple[str, str]) -> str:
    place = folder / ".".join(named)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    traced = scratch / place.name
    _run(*named, options, traced, place)
    for stage, text in _stages(traced):
        (place / stage).write_text(text, encoding="utf-8")
    shutil.rmtree(traced, ignore_errors=True)
    return f"{place.name} {len([*place.iterdir()])}"


def _chosen(wanted: list[str]) -> Iterator[tuple[str, str]]:
    for group, names in programs.GROUPS.items():
        for name in names:
            if not wanted or group in wanted or f"{group}.{name}" in wanted:
                yield group, name


def _run(group: str, name: str, options: dict[str, Any], traced: Path, place: Path) -> None:
    try:
        with warnings.catch_warnings(), flambeau.trace(traced, kernel_times=False):
            warnings.simplefilter("ignore")
            programs.run(group, name, options, str(traced))
    except Exception as error:
        (place / "error").write_text(f"{type(error).__name__}: {error}\n", encoding="utf-8")


def _quick_compiler(scratch: Path) -> str:
    """A C++ compiler that does not optimise: what is compared is what it is given."""
    script = scratch / "quick-c++"
    compiler = os.environ.get("CXX", "g++")
    script.write_text(f'#!/bin/bash\nexec {compiler} "${{@/#-O3/-O0}}"\n', encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def _stages(traced: Path) -> Iterator[tuple[str, str]]:
    """Names and normalised texts of what was traced, in the order of making."""
    met: dict[str, int] = {}
    for path in sorted(traced.rglob("*"), key=_order):
        if path.is_file() and KEPT.match(path.name):
            folder = path.parent.name
            stage = _plain(path.name if folder == "artefacts" else f"{folder}-{path.name}")
            met[stage] = met.get(stage, -1) + 1
            text = path.read_text(encoding="utf-8")
            yield f"{stage}.{met[stage]}", normalised(text, bool(_TEXT_OF_CODE.search(path.name)))


def _order(path: Path) -> tuple[float, str]:
    return (path.stat().st_mtime_ns if path.is_file() else 0, path.name)


def _plain(name: str) -> str:
    """A file's name without counts, processes and random endings."""
    name = re.sub(r"-\d+-[a-z0-9_]{8}(?=-|$)", "", name)
    name = re.sub(r"^\d{4}-(\d+-)?", "", name)
    return re.sub(r"__compiled_fn_\d+", "graph", name)


def normalised(text: str, code: bool) -> str:
    """Counted names by their first appearance; no addresses; no comments in code."""
    text = _FOLDERS.sub("", _ADDRESS.sub("ADDRESS", text))
    if code:
        text = re.sub(r"^\s*(//|# ).*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"\s+(//|#) .*$", "", text, flags=re.MULTILINE)
    counts: dict[str, dict[str, int]] = {}

    def renamed(found: re.Match[str]) -> str:
        stem, number = found.groups()
        numbers = counts.setdefault(stem, {})
        return f"{stem}{numbers.setdefault(number, len(numbers))}"

    return _COUNTED.sub(renamed, text)
