"""Cache key of a captured graph: everything that decides the generated code.

In: a graph, the inputs of this call, the choices. Out: a `Key` of named parts, or `CannotKey`.
Invariant: a value of a tensor is never part of it; metadata, options, the state of torch, the
versions and the text of our packages, compiler and devices are.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from flambeau_aot import CannotSave, encoded
from flambeau_aot.sizes import has_symbols
from flambeau_inductor import CompilerNotFound
from flambeau_inductor.cache import Key, code, key, processor, versions
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from torch import fx

from flambeau._torch_compat import is_view, modes_of_math
from flambeau.cache.graph_text import CannotKey, text_of
from flambeau.cache.open_sizes import GraphSymbols
from flambeau.choices import Choices

KIND = "graphs"
VARIANT = "variant"
CODE = ("flambeau_capture", "flambeau_prims", "flambeau_aot", "flambeau_inductor", "flambeau")
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def graph_key(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    choices: Choices,
    sizes: GraphSymbols | None = None,
    folder: Path | None = None,
) -> Key:
    """The key of `gm` compiled for these inputs now. Raises CannotKey.

    folder: a trusted one, in which the digest of our packages is noted. sizes: those that the graph
    leaves open. Their values are no part of the key: see `variant`.
    """
    if choices.inductor.observer is not None or choices.inductor.debug_dir is not None:
        raise CannotKey("somebody looks at the stages (a trace, a debug folder)")
    if getattr(choices.inductor, "freezing", False):
        raise CannotKey("freezing, which compiles values of weights into the graph")
    text, tensors = text_of(gm)
    _refuse_shared([*tensors, *inputs])
    described: list[str] = []
    first: dict[int, int] = {}
    stand_ins = chain(repeat(None, len(tensors)), sizes.placeholders if sizes else repeat(None))
    for place, (item, stand_in) in enumerate(zip([*tensors, *inputs], stand_ins)):
        if isinstance(item, torch.Tensor) and id(item) in first:
            described.append(f"{place}: the same as {first[id(item)]}")
            continue
        first[id(item)] = place
        left_open = sizes.described(stand_in) if sizes and has_symbols(stand_in) else None
        described.append(f"{place}: {metadata(item, left_open)}")
    parts: dict[str, str] = {}
    if sizes is not None:
        sizes.refuse_others(gm)
        parts["sizes"] = sizes.text()
    return key(
        KIND,
        **parts,
        graph=text,
        inputs="\n".join(described),
        state=state(),
        options=_options(choices),
        code=code(CODE, folder),
        versions=versions(),
        processor=processor(),
        toolchain=_toolchain(choices.inductor.compiler),
        devices=_devices([*tensors, *inputs]),
    )


def variant(of: Key, number: int) -> Key:
    """The key of one of the entries of a graph with open sizes: each is for the sizes that fulfil
    its own conditions."""
    return key(of.kind, **{**dict(of.parts), VARIANT: str(number)})


def metadata(item: Any, sizes: str | None = None) -> str:
    """What compiling reads of an input; `sizes`, where some are open, in place of its own."""
    if not isinstance(item, torch.Tensor):
        try:
            return f"{type(item).__name__} {sizes}" if sizes else repr(encoded(item))
        except CannotSave:
            raise CannotKey(f"an input of the class {type(item).__name__}") from None
    if type(item) not in PLAIN_TENSORS:
        raise CannotKey(f"a tensor of the class {type(item).__name__}")
    if item.layout != torch.strided or item.is_quantized or item.is_conj() or item.is_neg():
        raise CannotKey(f"a tensor that is not plain memory ({item.layout}, {item.dtype})")
    facts = [
        f"{item.dtype} {sizes or f'{list(item.shape)} {list(item.stride())}'}",
        f"{item.storage_offset()}",
        f"{item.device}",
        "requires grad" if item.requires_grad else "",
        "leaf" if item.is_leaf else "",
        "view" if is_view(item) else "",
        "inference" if item.is_inference() else "",
        type(item).__name__ if isinstance(item, torch.nn.Parameter) else "",
    ]
    return ", ".join(fact for fact in facts if fact)


def state() -> str:
    """What torch is set to on this thread."""
    found = {
        "grad": str(torch.is_grad_enabled()),
        "inference": str(torch.is_inference_mode_enabled()),
        "default dtype": str(torch.get_default_dtype()),
        "threads": str(torch.get_num_threads()),  # they decide which library multiplies
        **modes_of_math(),
    }
    for device in ("cpu", "cuda"):
        found[f"autocast {device}"] = (
            f"{torch.is_autocast_enabled(device)} {torch.get_autocast_dtype(device)}"
        )
    found["autocast cache"] = str(torch.is_autocast_cache_enabled())
    return "\n".join(f"{name}: {text}" for name, text in found.items())


def _options(choices: Choices) -> str:
    """The options of the stages after capture; folders decide nothing."""
    inductor = replace(choices.inductor, cache_dir=None, debug_dir=None)
    text = f"{replace(choices.aot, classify=None)}\n{inductor}"
    if " at 0x" in text:
        raise CannotKey(f"an option that is a function: {text}")
    return f"{text}\nTRITON_INTERPRET={os.environ.get('TRITON_INTERPRET', '')}"


def _refuse_shared(items: Sequence[Any]) -> None:
    """How inputs overlap decides what is compiled where one of them is written to."""
    holders: dict[int, Any] = {}
    for item in items:
        if type(item) not in PLAIN_TENSORS or not item.numel():
            continue
        if item._is_zerotensor():
            raise CannotKey("a tensor without memory")
        known = holders.setdefault(item.untyped_storage().data_ptr(), item)
        if known is not item:
            raise CannotKey("inputs that share memory")


def _toolchain(compiler: str | None) -> str:
    try:
        return find_toolchain(compiler).identity
    except CompilerNotFound:
        return "none"


def _devices(items: Sequence[Any]) -> str:
    """The GPUs that the inputs are on."""
    indices = {
        item.device.index or 0
        for item in items
        if isinstance(item, torch.Tensor) and item.device.type == "cuda"
    }
    found = [
        f"{index}: {torch.cuda.get_device_name(index)} {torch.cuda.get_device_capability(index)}"
        for index in sorted(indices)
    ]
    return "\n".join([sys.platform, *found])
