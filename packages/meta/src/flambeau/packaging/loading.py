"""Loader of packages, with the runtime alone, on a machine that fits.

In: a file that `flambeau.package` wrote. Out: a callable. Invariant: no compiler, tracer or
symbolic mathematics is imported; a file that was changed, or made for another machine, is refused
with the reason before any of its code runs. Whoever loads a file runs its code: load your own.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flambeau_aot
import flambeau_inductor
import torch
from flambeau_aot.errors import AotError
from flambeau_aot.serialize.saved_program import decoded, restore
from flambeau_inductor.runtime.kernel_part import CannotLoad
from torch.autograd import forward_ad

from flambeau.__about__ import __version__
from flambeau._torch_compat import pytree
from flambeau.errors import Refused, adopt
from flambeau.packaging import archive
from flambeau.packaging.guard_expressions import evaluated, open_form_from, written
from flambeau.packaging.processors import chosen, features, lacking, variants_of


def machine_facts() -> dict[str, Any]:
    """The facts of this process."""
    return {
        "python": sys.implementation.cache_tag,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "system": sys.platform,
        "features": sorted(features()),
        "packages": {
            "flambeau": __version__,
            "flambeau-aot": flambeau_aot.__version__,
            "flambeau-inductor": flambeau_inductor.__version__,
        },
    }


def gpu_facts(index: int = 0) -> dict[str, Any] | None:
    """The facts of a GPU; None where there is none."""
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return None
    capability = ".".join(map(str, torch.cuda.get_device_capability(index)))
    return {"index": index, "name": torch.cuda.get_device_name(index), "capability": capability}


def misfits(of: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> list[str]:
    """What keeps code with these facts from running here, each in a few words."""
    here = machine_facts() if own is None else own
    found = [
        f"it was made for {name} {of[name]}, here is {here[name]}"
        for name in ("python", "machine", "system")
        if of[name] != here[name]
    ]
    if _release(of["torch"]) != _release(here["torch"]):
        found.append(f"it was made with torch {of['torch']}, here is {here['torch']}")
    for name, version in of["packages"].items():
        if _release(version) != _release(here["packages"].get(name, "none")):
            found.append(f"it was made with {name} {version}, here is {here['packages'][name]}")
    variants, has = variants_of(of), frozenset(here["features"])
    gpu = _gpu_of(of) if own is None else own.get("gpu")
    if chosen(variants, has, gpu) is None:
        found.append(lacking(variants, has, gpu))
    return found


def _gpu_of(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """The facts of the GPU here that code with these facts would run on."""
    return gpu_facts(facts["gpu"]["index"]) if "gpu" in facts else None


def _release(version: str) -> tuple[str, ...]:
    """The two numbers within which what compiled code calls does not change."""
    return tuple(version.split("+")[0].split(".")[:2])


adopt(AotError, flambeau_inductor.InductorError)

KIND = "package"
WEIGHTS = "weights.pt"
CALL = "call.json"


class Loaded:
    """A function out of a file; it is called as the function it was made from.

    facts: where and with what it was made. guards: what was assumed about the program when it was
    made, as text; what a call has to be is checked at each call. A file made under
    `torch.no_grad()` gives results without a gradient in any grad mode, whatever its weights.
    """

    def __init__(self, path: Path, folder: Path, state: Mapping[str, torch.Tensor]) -> None:
        self.path = path
        self.facts = archive.unpack(path, KIND, folder)
        wrong = misfits(self.facts)
        if wrong:
            raise Refused(f"{path}: {'; '.join(wrong)}")
        try:
            call = json.loads((folder / CALL).read_text())
            gpu = _gpu_of(self.facts)
            number = chosen(variants_of(self.facts), features(), gpu)
            kept = archive.read_bundle(folder, archive.prefix(number or 0))
            halves = archive.load_halves(kept)
            self._arguments = pytree.treespec_loads(call["arguments"])
            self._result = pytree.treespec_loads(call["result"])
            self.guards: tuple[str, ...] = tuple(call["guards"])
            self._forms = call["forms"]
            self._open = open_form_from(call["open"])
            self._values = {
                place: decoded(form["value"])
                for place, form in enumerate(self._forms)
                if "value" in form
            }
        except (OSError, LookupError, TypeError, ValueError, AotError, CannotLoad,
                NotImplementedError) as error:  # fmt: skip
            raise Refused(f"{path}: {type(error).__name__}: {error}") from error
        self._static = _bound(path, folder, call["static"], state)
        tensors = list(self._static.values())
        backward = halves[1] if len(halves) > 1 else None
        self._run = restore(kept.stored, tensors, halves[0], backward)
        self._grad_mode = kept.stored.grad_mode

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result. Raises TypeError and ValueError for arguments of another form."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._arguments:
            raise TypeError(f"arguments of another structure: {spec}, made for {self._arguments}")
        self._check(leaves)
        with torch.set_grad_enabled(self._grad_mode and torch.is_grad_enabled()):
            flat = self._run(*(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)))
        return pytree.tree_unflatten(list(flat), self._result)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by the names they had."""
        return {name: tensor for name, tensor in self._static.items() if not name.startswith("#")}

    def _check(self, leaves: Sequence[Any]) -> None:
        """Raises TypeError and ValueError for arguments that the code is not for."""
        for place, leaf in enumerate(leaves):
            if place in self._values:
                known = self._values[place]
                if type(leaf) is not type(known) or leaf != known:
                    raise ValueError(
                        f"argument {place} is {leaf!r}, the file is made for {known!r}"
                    )
            else:
                self._check_kind(place, leaf)
        values = () if self._open is None else self._open.values(leaves)
        for place, form in enumerate(self._forms):
            if place not in self._values:
                _check_layout(place, leaves[place], form, values)

    def _check_kind(self, place: int, leaf: Any) -> None:
        form = self._forms[place]
        names = () if self._open is None else self._open.names
        sizes = ", ".join(written(size, names) for size in form["shape"])
        wanted = f"{form['dtype']} [{sizes}] on {form['device']}"
        if not isinstance(leaf, torch.Tensor):
            raise TypeError(f"argument {place} is a {type(leaf).__name__}, not {wanted}")
        given = f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)} on {leaf.device}"
        same = (
            leaf.dtype is getattr(torch, form["dtype"])
            and str(leaf.device) == form["device"]
            and leaf.layout == torch.strided
            and leaf.dim() == len(form["shape"])
            and all(
                not isinstance(size, int) or size == own
                for size, own in zip(form["shape"], leaf.shape, strict=True)
            )
        )
        if not same:
            raise ValueError(f"argument {place} is {given}, the file is made for {wanted}")
        if leaf.is_conj() or leaf.is_neg():
            raise ValueError(f"argument {place} is a lazy conjugate or negative: resolve it first")
        if forward_ad.unpack_dual(leaf).tangent is not None:
            raise ValueError(
                f"argument {place} has a tangent of forward-mode differentiation, which the file "
                "would lose; call the function that it was made from"
            )
        if not (leaf.requires_grad and torch.is_grad_enabled()):
            return
        if not (self._grad_mode and form["requires_grad"]):
            made = "for one that does not" if self._grad_mode else "under torch.no_grad()"
            raise ValueError(
                f"argument {place} requires grad, and the file is made {made}: its gradient would "
                "be missing (detach it, call under torch.no_grad(), or package with grad enabled "
                "and an example that requires grad)"
            )

    def __repr__(self) -> str:
        return f"<{self.facts['function']} of {self.path}>"


def _check_layout(
    place: int, leaf: torch.Tensor, form: Mapping[str, Any], values: Sequence[int]
) -> None:
    """The code reads memory by strides: others than those it is made for are refused."""
    wanted = [evaluated(tree, values) for tree in form["stride"]]
    given = leaf.stride()
    differs = any(
        size > 1 and own != step for size, own, step in zip(leaf.shape, given, wanted, strict=True)
    )
    if differs and leaf.numel():
        raise ValueError(
            f"argument {place} has strides {list(given)}, the file is made for {wanted}: call it "
            "with a tensor that is laid out like the example, as .contiguous() gives one"
        )


def load(path: str | Path, state: Any = None) -> Loaded:
    """The function in the file at `path`.

    state: parameters and buffers by name, or a module that has them, for a file that was made
    with `weights=False`; they are used as they are, not copied.

    Raises Refused with the reason.
    """
    named: Mapping[str, torch.Tensor] = {}
    if isinstance(state, torch.nn.Module):
        named = {**dict(state.named_parameters()), **dict(state.named_buffers())}
    elif state is not None:
        named = state
    folder = Path(tempfile.mkdtemp(prefix="flambeau-"))
    try:
        loaded = Loaded(Path(path), folder, named)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(loaded, shutil.rmtree, folder, ignore_errors=True)
    return loaded


def _bound(
    path: Path, folder: Path, static: list[dict[str, Any]], state: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The tensors that the program is bound to, by name; `#0` is one that has none."""
    marks = [(each["parameter"], each["requires_grad"]) for each in static if each["inside"]]
    inside = iter(archive.tensors_from(folder / WEIGHTS, marks))
    found: dict[str, torch.Tensor] = {}
    for place, each in enumerate(static):
        name = each["name"] or f"#{place}"
        if each["inside"]:
            found[name] = state.get(name, next(inside))
        elif name in state:
            found[name] = state[name]
        else:
            raise Refused(f"{path}: made without weights, and state= has no {name}")
        if described(found[name]) != each["form"]:
            given = described(found[name])
            raise Refused(f"{path}: {name} is {given}, the file is made for {each['form']}")
    return found


def described(tensor: torch.Tensor) -> str:
    """What a parameter or buffer has to be, in the words of the file."""
    return f"{tensor.dtype} {list(tensor.shape)} {list(tensor.stride())} {tensor.device}"
