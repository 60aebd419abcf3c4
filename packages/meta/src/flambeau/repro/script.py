"""Script that reproduces a failing graph, and the minifier of such scripts.

In: a graph, inputs, how it fails; or a script. Out: a file, with tensors next to it where drawn
numbers do not do; and the graph again from such a file. Invariant: what a script shows was seen to
fail with just the inputs that the script makes; a graph that ends the process is minified in
processes of its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import fx

from flambeau.events.records import operations
from flambeau.repro.check import GraphCheck, GraphFailure, found_backend, spelled
from flambeau.repro.function_text import CannotWrite, function_of, import_line, text_of
from flambeau.repro.shrink import Test, shrink

SEED = 0
TENSORS = "_tensors.pt"


@dataclass(frozen=True)
class Script:
    """A script on disk. `saved`: the inputs are in a file next to it, and not drawn."""

    path: Path
    failure: GraphFailure
    operations: int
    saved: bool


def write_script(
    path: Path,
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    failure: GraphFailure,
    backend: str | Callable[..., Any],
    test: Test | None = None,
    command: str = "",
) -> Script:
    """Write the script; where `test` fails with drawn inputs too, they are drawn, else saved.

    backend: its name, or a callable, of which the script has the name or the text.
    """
    names = dict.fromkeys(str(n.target) for n in gm.graph.nodes if n.op == "get_attr")
    held = {name: attrgetter(name)(gm) for name in names}
    saved = True
    if test is not None:
        found = test(gm, [drawn_like(value, number) for number, value in enumerate(inputs)])
        saved = found is None or found.kind != failure.kind
    kept = {
        "inputs": [_plain(value) for value in inputs] if saved else [],
        "held": {name: _plain(value) for name, value in held.items()},
    }
    code = gm.graph.python_code("self")
    used = set(re.findall(r"\w+", code.src))
    body = [*_backend_lines(backend), f"FAILURE = {failure.kind!r}", "", ""]
    body += ["class Graph(torch.nn.Module):", "    def __init__(self):"]
    body += ["        super().__init__()"]
    body += [f"        {_registered(name, value)}" for name, value in held.items()]
    body += ["", *(f"    {line}".rstrip() for line in code.src.strip().splitlines()), ""]
    body += ["", "def inputs():"]
    if saved:
        body += ['    return TENSORS["inputs"]']
    else:
        drawings = (drawing_of(value, number) for number, value in enumerate(inputs))
        body += ["    return [", *(f"        {each}," for each in drawings), "    ]"]
    about = ["A graph that fails.", "", *quoted(str(failure)), ""]
    about += ["Run it to see: it exits with 1 while the graph fails, with 0 once it does not."]
    about += [command] if command else []
    imports = sorted(_imports({k: v for k, v in code.globals.items() if k in used}))
    imports += ["", "from flambeau.repro import drawn, run_script"]
    beside = {"TENSORS": kept} if saved or held else {}
    main = "run_script(Graph(), inputs(), BACKEND, FAILURE)"
    save_script(path, about, imports, beside, body, main)
    return Script(path, failure, operations(gm), saved)


def save_script(
    path: Path,
    about: Sequence[str],
    imports: Sequence[str],
    beside: Mapping[str, Any],
    body: Sequence[str],
    main: str,
) -> None:
    """Write a script that exits with what `main` gives, and to a file next to it what it reads from
    there, under the only name in `beside`."""
    lines = [f'"""{about[0]}', *about[1:], '"""', "", "import sys"]
    lines += [*["from pathlib import Path"] * bool(beside), "", "import torch", *imports, ""]
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, values in beside.items():
        tensors = path.with_name(path.stem + TENSORS)
        torch.save(values, tensors)
        here = f"Path(__file__).with_name({tensors.name!r})"
        lines += [f"{name} = torch.load({here}, weights_only=False)"]
    lines += [*body, "", "", 'if __name__ == "__main__":', f"    sys.exit({main})", ""]
    path.write_text("\n".join(lines), encoding="utf-8")


def _backend_lines(backend: str | Callable[..., Any]) -> list[str]:
    """How a script gets its backend: by name, or, where no module offers it, by its text."""
    if isinstance(backend, str):
        return [f"BACKEND = {backend!r}"]
    name = spelled(backend)
    try:
        if not name.startswith("__main__:") and found_backend(name) is backend:
            return [f"BACKEND = {name!r}"]
    except (ImportError, AttributeError):
        pass  # it is not to be found by name: its text may do
    try:
        text = text_of(function_of(backend)[0])
    except CannotWrite as error:
        return [f"# no module offers the backend, and its text does not do: {error}", "",
                f"BACKEND = {name!r}"]  # fmt: skip
    imports = [line for line in text.imports if line != "import torch"]
    return [*imports, *text.lines(), "", "", f"BACKEND = {text.name}"]


def quoted(text: str) -> list[str]:
    """Lines that may stand in a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''").splitlines()


def _imports(names: dict[str, Any]) -> list[str]:
    """How a script gets the names that the graph's code uses."""
    found = []
    for name, value in names.items():
        if name == "torch" or (name.startswith("_") and value is None):
            continue
        if isinstance(value, float):
            found.append(f"from math import {'nan' if math.isnan(value) else 'inf'}")
        elif value is type(None):
            found.append(f"{name} = type(None)")
        elif getattr(torch, name, None) is value:
            found.append(f"from torch import {name}")
        elif (line := import_line(name, value)) is not None:
            found.append(line)
        else:
            raise CannotWrite(f"{value!r} cannot be imported by name")
    return found


def _registered(name: str, value: Any) -> str:
    if "." in name:
        raise CannotWrite(f"the attribute {name} is inside of another module")
    loaded = f'TENSORS["held"][{name!r}]'
    if isinstance(value, torch.nn.Parameter):
        return f"self.{name} = torch.nn.Parameter({loaded}, requires_grad={value.requires_grad})"
    if isinstance(value, torch.Tensor):
        return f"self.register_buffer({name!r}, {loaded})"
    raise CannotWrite(f"the attribute {name} is a {type(value).__name__}, not a tensor")


def _plain(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def drawn(
    shape: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    seed: int,
    device: str = "cpu",
    requires_grad: bool = False,
) -> torch.Tensor:
    """A tensor of normal numbers, or of small integers, from a seed."""
    generator = torch.Generator().manual_seed(SEED + seed)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        values = torch.randn(tuple(shape), generator=generator, dtype=wide)
    else:
        values = torch.randint(0, 2, tuple(shape), generator=generator)
    made = torch.empty_strided(tuple(shape), tuple(stride), dtype=dtype, device=device)
    return made.copy_(values).requires_grad_(requires_grad)


def drawn_like(value: Any, seed: int) -> Any:
    """Numbers from a seed in place of a tensor; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    place = str(value.device)
    return drawn(value.shape, value.stride(), value.dtype, seed, place, value.requires_grad)


def drawing_of(value: Any, seed: int) -> str:
    """The call of `drawn` that makes such a tensor."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    given = [str(tuple(value.shape)), str(tuple(value.stride())), str(value.dtype), str(seed)]
    if value.device.type != "cpu":
        given.append(f"device={str(value.device)!r}")
    if value.requires_grad:
        given.append("requires_grad=True")
    return f"drawn({', '.join(given)})"


def read_script(path: Path) -> tuple[fx.GraphModule, list[Any], str | Callable[..., Any]]:
    """The graph, the inputs and the backend of a script. It is run: read only your own."""
    spec = importlib.util.spec_from_file_location("flambeau_repro_script", path)
    if spec is None or spec.loader is None:
        raise CannotWrite(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return fx.symbolic_trace(module.Graph()), list(module.inputs()), module.BACKEND


def run_script(
    module: torch.nn.Module, inputs: Sequence[Any], backend: str | Callable[..., Any], failure: str
) -> int:
    """What a script does: 1 and the failure while it fails as it did, 0 once it does not."""
    gm = fx.symbolic_trace(module)
    found = GraphCheck(backend, accuracy=failure == "wrong")(gm, inputs)
    if found is None:
        print("it does not fail any more")
        return 0
    print(found if found.kind == failure else f"it fails in another way: {found}")
    return 1


SECONDS = 120.0


def minify(path: Path, most_tests: int = 400) -> Script | None:
    """Write `NAME_min.py` next to a script; None where its graph does not fail (any more)."""
    kind = re.search(r"^FAILURE = '(\w+)'", path.read_text(encoding="utf-8"), re.MULTILINE)
    if kind is None:
        raise CannotWrite(f"{path} holds no graph that fails (one of calls is short already)")
    gm, inputs, backend = read_script(path)
    test: Test = GraphCheck(backend, accuracy=kind.group(1) == "wrong")
    if kind.group(1) == "ended":
        test = partial(_ended, backend)
    smaller = shrink(gm, inputs, test, most_tests)
    if smaller is None:
        return None
    place = path.with_name(f"{path.stem}_min.py")
    return write_script(place, smaller.gm, smaller.inputs, smaller.failure, backend, test)


def _ended(
    backend: str | Callable[..., Any], gm: fx.GraphModule, inputs: Sequence[Any]
) -> GraphFailure | None:
    """Run a graph's script in another process; it fails where a signal ends that."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.py"
        write_script(path, gm, inputs, GraphFailure("ended", ""), backend)
        command = [sys.executable, str(path)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
    if done.returncode >= 0:
        return None
    return GraphFailure("ended", f"the process ended by signal {-done.returncode}")
