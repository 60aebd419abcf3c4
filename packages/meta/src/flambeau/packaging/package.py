"""Packaging of a compiled function into one file.

In: a function or module and example arguments. Out: a file that `flambeau.load` runs with neither
the function nor the compiler. Invariant: the file holds the whole call in one graph; what cannot be
had so, or what no other process can load, is an error that says what it is, before anything is
written.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import flambeau_aot
import flambeau_capture
import flambeau_inductor
import flambeau_prims
import torch
from flambeau_capture import Exported
from flambeau_capture.api import uncompiled
from flambeau_inductor.runtime.gpu.binaries import dotted
from flambeau_inductor.tuning.machine import ARCHITECTURES
from flambeau_inductor.wrapper.without_python import NoForm, quoted

from flambeau._torch_compat import pytree
from flambeau.backends.composed import classify, table_for
from flambeau.cache.graph_data import CannotKey
from flambeau.cache.open_sizes import open_sizes
from flambeau.choices import Choices, choose
from flambeau.errors import BadOption, CannotPackage
from flambeau.packaging import archive
from flambeau.packaging.cpp_program import cpp_program
from flambeau.packaging.export import open_form
from flambeau.packaging.loading import CALL, KIND, WEIGHTS, described, gpu_facts, machine_facts
from flambeau.packaging.processors import features, known_processor, needed_by
from flambeau.switching.stack import module_of_program

LOADABLE = frozenset({"cpp", "cubin"})
"""Loaders of kernels that the runtime has by itself."""
CPP = "program.steps"
"""What a C++ program reads: the program, or why it needs Python."""


def package(
    fn: Callable[..., Any],
    *args: Any,
    path: str | Path,
    weights: bool = True,
    mode: str | None = None,
    options: dict[str, object] | None = None,
    processors: Sequence[str] = (),
    gpus: Sequence[str] = (),
    **kwargs: Any,
) -> Path:
    """Compile `fn(*args, **kwargs)` into the file at `path`, which is returned.

    weights: whether parameters and buffers of a module are part of the file; else
    `flambeau.load(path, state=...)` is given them. The grad mode of now is that of the file: with
    grad enabled and parameters that require it, the loaded function can be differentiated.
    processors: some of `"x86-64-v2"`, `"x86-64-v3"`, `"x86-64-v4"` and `"native"`; the file has
    kernels for each, and a machine runs the first that it can. Without them: this machine's.
    gpus: kinds of GPU, as `"sm_80"`; the file has the kernels of this program as binaries for each.
    Without them: for the GPU that the arguments are on.

    Raises:
        CannotPackage: the result or the kernels have no form in a file.
        flambeau_capture.Unsupported: the call cannot be had in one graph; it names the line.
    """
    fn = uncompiled(module_of_program(fn))
    choices, name = choose(mode, options), _name(fn)
    for processor in processors:
        known_processor(processor)
    capabilities = [_capability_named(name) for name in gpus]
    exported = flambeau_capture.export(fn, *args, **kwargs)
    leaves = pytree.tree_leaves((args, kwargs))
    with tempfile.TemporaryDirectory(prefix="flambeau-") as folder:
        flat = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        bundles: list[archive.Bundle] = []
        variants: list[dict[str, Any]] = []
        named: Sequence[str | None] = tuple(processors) or (choices.inductor.processor,)
        for built_for in named:
            made_for = replace(choices, inductor=replace(choices.inductor, processor=built_for))
            compiled, made = _compiled(exported, flat, made_for, name)
            on_gpu = [half.gpu for half in made if half.gpu is not None]
            if capabilities and not on_gpu:
                raise CannotPackage(f"gpus= names {gpus[0]}, and {name} has no kernels for a GPU")
            here = [torch.cuda.get_device_capability(max(on_gpu))] if on_gpu else [None]
            for capability in capabilities or here:
                own = Path(folder) / str(len(bundles))
                own.mkdir()
                halves = [_for_the_runtime(half, own, choices, capability) for half in made]
                bundles.append(archive.Bundle(compiled.stored, tuple(halves)))
                needs = needed_by(built_for) if built_for and processors else features()
                variants.append({"processor": built_for, "features": sorted(needs)})
                if capability is not None:
                    variants[-1]["capability"] = dotted(capability)
        static = _static(fn, exported, weights)
        call = _call(exported, leaves) | {"static": [facts for _, facts in static]}
        files: dict[str, bytes | Path] = {CALL: json.dumps(call).encode()}
        if kept := [tensor for tensor, facts in static if facts["inside"]]:
            files[WEIGHTS] = archive.tensor_bytes(kept)
        facts = machine_facts() | {"function": name, "weights": weights}
        if on_gpu:
            facts["gpu"] = gpu_facts(max(on_gpu))
        if processors or gpus:
            facts["variants"] = variants
        for number, bundle in enumerate(bundles):
            prefix = archive.prefix(number)
            try:
                files |= bundle.files(prefix)
            except flambeau_aot.CannotSave as error:
                raise CannotPackage(f"the result has no form in a file: {error}") from error
            files[prefix + CPP] = _for_cpp(bundle, call, facts, number)
        archive.write(Path(path), KIND, facts, files)
    return Path(path)


def _capability_named(name: str) -> tuple[int, int]:
    """The compute capability of a kind of GPU, as compilers name it (`sm_90`). Raises BadOption."""
    known = {f"sm_{major}{minor}": (major, minor) for major, minor in ARCHITECTURES}
    if name not in known:
        raise BadOption("gpus", name, f"names out of {', '.join(known)}")
    return known[name]


def _for_cpp(
    bundle: archive.Bundle, call: Mapping[str, Any], facts: Mapping[str, Any], number: int
) -> bytes:
    """The program for C++, or a line that says why it needs Python."""
    if "variants" in facts:
        facts = {**facts, **facts["variants"][number]}
    try:
        return cpp_program(bundle, call, facts, archive.prefix(number)).encode()
    except NoForm as needs:
        return f"(refused {quoted(str(needs))})\n".encode()


def _for_the_runtime(
    half: flambeau_inductor.Artifact,
    folder: Path,
    choices: Choices,
    capability: tuple[int, int] | None,
) -> flambeau_inductor.Artifact:
    """The half with binaries where Triton's compiler would load its kernels."""
    parts = list(half.parts)
    for number, part in enumerate(parts):
        if part.loader == "triton" and capability is not None:
            # only programs of a GPU need it
            from flambeau_inductor.kernels.triton_binaries import as_binaries

            own = folder / half.name
            own.mkdir(exist_ok=True)
            try:
                parts[number] = as_binaries(part, capability, own, choices.inductor)
            except flambeau_inductor.InductorError as error:
                raise CannotPackage(str(error)) from error
        elif part.loader not in LOADABLE:
            raise CannotPackage(f"{half.name} has kernels that need {part.loader} to be loaded")
    return replace(half, parts=tuple(parts))


def _compiled(
    exported: Exported, flat: Sequence[torch.Tensor], choices: Choices, name: str
) -> tuple[Any, list[flambeau_inductor.Artifact]]:
    made: list[flambeau_inductor.CompiledGraph] = []

    def compiler(gm: Any, inputs: list[Any], info: flambeau_aot.GraphInfo) -> Any:
        made.append(flambeau_inductor.compile(gm, inputs, info, choices.inductor))
        return made[-1]

    flambeau_inductor.keep_recurrent(exported.graph_module)
    aot = flambeau_aot.Options(name=name, classify=classify)
    table = table_for(choices.inductor)
    try:
        compiled = flambeau_aot.compile(
            exported.graph_module, flat, compiler, decompositions=table, options=aot
        )
    except (flambeau_aot.NotYetSymbolic, flambeau_prims.NotYetSymbolic) as error:
        raise CannotPackage(f"sizes that are left open have no form in {name}: {error}") from error
    artifacts = [each.artifact for each in made]
    if any(artifact is None for artifact in artifacts):
        raise CannotPackage(f"{name} has kernels that no other process can load")
    return compiled, artifacts


def _static(
    fn: Callable[..., Any], exported: Exported, weights: bool
) -> list[tuple[torch.Tensor, dict[str, Any]]]:
    """The tensors that the graph is bound to, each with what the file says of it."""
    owner = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    known: dict[int, str] = {}
    if isinstance(owner, torch.nn.Module):
        for name, tensor in [*owner.named_parameters(), *owner.named_buffers()]:
            known.setdefault(id(tensor), name)
    return [
        (tensor, {
            "name": known.get(id(tensor)),
            "inside": weights or id(tensor) not in known,
            "parameter": isinstance(tensor, torch.nn.Parameter),
            "requires_grad": tensor.requires_grad,
            "form": described(tensor),
        })
        for tensor in flambeau_aot.static_tensors(exported.graph_module)
    ]  # fmt: skip


def _call(exported: Exported, leaves: Sequence[Any]) -> dict[str, Any]:
    """How the loaded function is called."""
    try:
        specs = [pytree.treespec_dumps(s) for s in (exported.in_spec, exported.out_spec)]
    except (NotImplementedError, TypeError, ValueError) as error:
        raise CannotPackage(
            f"the arguments or the result are of a class that has no form in a file ({error}): "
            "give and return tuples, lists and dicts, or register a serialized_type_name for it"
        ) from error
    try:
        form, _ = open_form(exported)  # what the compile has assumed is part of it
    except CannotKey as error:
        raise CannotPackage(f"a condition on open sizes has no form in a file: {error}") from error
    return {
        "arguments": specs[0],
        "result": specs[1],
        "forms": _forms(exported, leaves),
        "guards": [str(guard) for guard in exported.guards],
        "open": None if form is None else form.data(),
    }


def _forms(exported: Exported, leaves: Sequence[Any]) -> list[Any]:
    """What each argument has to be: a tensor's metadata, open sizes as trees, or the value."""
    sizes = open_sizes(exported.graph_module)
    stand_ins = iter([node.meta["val"] for node in exported.graph_module.graph.nodes
                      if node.op == "placeholder"])  # fmt: skip
    forms: list[Any] = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            try:
                forms.append({"value": flambeau_aot.encoded(leaf)})
            except flambeau_aot.CannotSave as error:
                said = f"an argument is neither a tensor nor plain data: {error}"
                raise CannotPackage(said) from error
            continue
        value = next(stand_ins)
        numbers = [list(value.shape), list(value.stride())]
        if sizes is not None:
            numbers = [[sizes.size(number) for number in part] for part in numbers]
        forms.append({"shape": numbers[0], "stride": numbers[1],
                      "dtype": str(leaf.dtype).removeprefix("torch."),
                      "device": str(leaf.device), "requires_grad": leaf.requires_grad})  # fmt: skip
    return forms


def _name(fn: Any) -> str:
    name = str(getattr(fn, "__name__", type(fn).__name__)).lower()
    return "".join(char if char.isalnum() else "_" for char in name) or "graph"
