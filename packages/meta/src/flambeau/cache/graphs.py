"""Disk cache of whole compiled graphs, by a key of everything that decides the generated code.

In: a captured graph, the inputs of this call, the choices. Out: a `Key` of named parts; a compiled
program with neither a trace, nor a schedule, nor a compiler run; or what a fresh compile gives,
kept for the next process. Invariant: a value of a tensor is never part of a key; metadata, options,
the state of torch, the versions and the text of our packages, compiler and devices are. A graph
without a key, an entry that does not load and a disk that fails cost the time of a compile and are
counted with the reason; they never fail the program.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import flambeau_aot
import flambeau_capture
import torch
from flambeau_aot import AotError, CannotSave, Compiled, encoded
from flambeau_aot.sizes import has_symbols
from flambeau_inductor import CannotLoad, CompiledGraph, CompilerNotFound
from flambeau_inductor.cache import OWN, Key, code, key, open_store, processor, versions
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.kernels.loaders import loaders
from torch import fx

from flambeau import _torch_compat as compat
from flambeau._torch_compat import is_view, modes_of_math
from flambeau.cache import distributed_keys
from flambeau.cache.graph_data import CannotKey, text_of
from flambeau.cache.open_sizes import GraphSymbols, open_sizes
from flambeau.choices import Choices
from flambeau.distributed import compile_once
from flambeau.errors import Refused
from flambeau.packaging import archive
from flambeau.packaging.guard_expressions import Tree, UnknownOperation

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
    text, tensors = text_of(gm, distributed_keys.called)
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
    if placed := distributed_keys.dispatch(gm, [*tensors, *inputs]):
        parts["distributed"] = placed
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
    if distributed_keys.is_distributed(item):
        return f"{distributed_keys.around(item)}: {metadata(compat.local_part(item)[0])}"
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
    for item in (compat.local_part(each)[0] for each in items):
        if type(item) not in PLAIN_TENSORS or not item.numel():
            continue
        if item._is_zerotensor() or item.layout != torch.strided:
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


LARGE = 64 << 20
SIZES = "sizes.json"
VARIANTS = 8
"""Entries of one graph with open sizes: what holds for one size may not hold for another."""
FULL = f"{VARIANTS} entries for other sizes are there"
Recompile = Callable[[Sequence[Any]], Compiled]


@dataclass(frozen=True)
class RestoredGraph:
    """A restored program with its halves, forward first."""

    compiled: Compiled
    halves: tuple[CompiledGraph, ...]


class CacheLookup:
    """One graph in the cache: its key, or the reason why it has none or is not kept.

    fault: what went wrong with the disk.
    """

    def __init__(self, gm: fx.GraphModule, inputs: Sequence[Any], choices: Choices) -> None:
        self._gm, self._inputs, self._choices = gm, inputs, choices
        self.key: Key | None = None
        self.reason = self.fault = ""
        self._sizes: GraphSymbols | None = None
        self._turn: compile_once.Turn | None = None
        if not choices.inductor.disk_cache:
            self.reason = "the option disk_cache is off"
            return
        self._store = open_store(choices.inductor.cache_dir)
        try:
            self._sizes = open_sizes(gm)
            self.key = graph_key(gm, inputs, choices, self._sizes, self._store.folder)
        except CannotKey as reason:
            self.reason = str(reason)
        self._before = [] if self._sizes is None else compat.facts_of(self._sizes.environment)

    def _keys(self, key: Key) -> list[Key]:
        """The keys of the entries that the graph may have: several where sizes are open."""
        if self._sizes is None:
            return [key]
        return [variant(key, number) for number in range(VARIANTS)]

    def find(self, recompile: Recompile) -> RestoredGraph | None:
        """The program from the disk; `recompile` is for what data cannot say.

        Of a graph with open sizes it is the entry whose conditions hold for those of now; they are
        assumed when this returns it.
        """
        if self.key is None:
            return None
        for own in self._keys(self.key):
            self.key, place = own, self._store.find(own)
            if place is None:
                return None  # the place that a fresh one takes
            if self._sizes is None:
                return self._restored(place, own, recompile)
            conditions = self._conditions(place, self._sizes)
            if conditions is not None and self._sizes.fit(conditions):
                found = self._restored(place, own, recompile)
                if found is not None:
                    self._sizes.assume(conditions)
                return found
        self.key, self.reason = None, FULL
        return None

    def from_others(self, recompile: Recompile) -> RestoredGraph | None:
        """The program that another rank compiles meanwhile; None: it is for this one to compile."""
        if self.key is None or self._sizes is not None:
            return None
        self._turn = compile_once.turn(self.key.digest, self._store.folder)
        if self._turn is None:
            return None
        made = self._turn.wait()
        if made is not None:
            try:
                self.fault = self._store.put(self.key, archive.unpacked(made, KIND))
            except Refused as error:
                self.fault = str(error)
        place = self._store.find(self.key)
        found = None if place is None else self._restored(place, self.key, recompile)
        if found is not None:
            self.end_turn()
        return found

    def end_turn(self) -> None:
        """Let ranks that wait for this one go on, with what it has kept."""
        if self._turn is None:
            return
        place = None if self.key is None else self._store.find(self.key)
        files = {} if place is None else {x.name: x for x in place.iterdir() if x.name not in OWN}
        self._turn.end(archive.packed(KIND, files) if self._turn.first and files else b"")
        self._turn = None

    def _conditions(self, place: Path, sizes: GraphSymbols) -> list[Tree] | None:
        """What an entry takes for granted about sizes; None where that cannot be read."""
        try:
            found = json.loads((place / SIZES).read_text())
            sizes.fit(found)  # raises for what this version has no meaning for
            return list(found)
        except (OSError, TypeError, ValueError, LookupError, UnknownOperation) as error:
            self.fault = f"an entry does not load: {type(error).__name__}: {error}"
            return None

    def _restored(self, place: Path, key: Key, recompile: Recompile) -> RestoredGraph | None:
        try:
            kept = archive.read_bundle(place)
            halves = archive.load_halves(kept, loaders(self._choices.inductor), (self._store,))
            graphs = tuple(half for half in halves if isinstance(half, CompiledGraph))
            backward = flambeau_capture.disable(graphs[1]) if len(graphs) > 1 else None
            compiled = flambeau_aot.restore_graph(
                kept.stored, self._gm, self._inputs, graphs[0], backward, recompile
            )
        except (OSError, LookupError, TypeError, ValueError, AotError, CannotLoad) as error:
            # digests hold, so it is of another kind: it is made again in its place
            self.fault = f"an entry does not load: {type(error).__name__}: {error}"
            self._store.drop(key)
            return None
        return RestoredGraph(compiled, graphs)

    def keep(self, compiled: Compiled, halves: Sequence[CompiledGraph]) -> None:
        """Keep what was compiled just now; why not, in `reason` or `fault`."""
        if self.key is None:
            return
        if self._sizes is not None and VARIANT not in dict(self.key.parts):
            # nobody has looked for an entry that fits
            free = (each for each in self._keys(self.key) if self._store.find(each) is None)
            self.key = next(free, None)
        artifacts = [half.artifact for half in halves]
        if self.key is None:
            self.reason = FULL
        elif compiled.stored is None:
            self.reason = "a backward part compiled at its first use"
        elif not artifacts or any(artifact is None for artifact in artifacts):
            self.reason = "kernels that no other process can load"
        elif any(sum(t.nbytes for t in each.constants.values()) > LARGE for each in artifacts):
            self.reason = "constants of more than 64 MiB"
        else:
            try:
                files = archive.Bundle(compiled.stored, tuple(artifacts)).files()
                if self._sizes is not None:
                    files[SIZES] = json.dumps(self._sizes.learnt(self._before)).encode()
            except (CannotSave, CannotKey) as error:
                self.reason = str(error)
                return
            fault = self._store.put(self.key, files)
            self.fault = self.fault or fault
