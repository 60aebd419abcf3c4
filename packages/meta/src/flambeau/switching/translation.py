"""Translation of what is said to torch's compiler: modes, options, configuration, environment.

In: `mode=`, `options=`, the values of torch's configuration modules where they are loaded, and
variables of the environment. Out: options of Flambeau. Invariant: every name means something here,
or is said, in one warning a process, to have become nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flambeau.errors import UnknownMode, UnknownOption, warn
from flambeau.switching.stack import knows_option, loaded

MOST_ENTRIES = 64
"""Of one code object, that capture has room for."""


@dataclass(frozen=True)
class Counterpart:
    """What an option of torch's becomes.

    name: ours of the same meaning, spelled in full. becomes: a value of theirs to one of ours, or
    to None where nothing needs to be set; without it values are the same. text: what became of it,
    where `name` is empty. usual: the value that changes nothing here.
    """

    name: str = ""
    becomes: Mapping[Any, Any] | None = None
    text: str = ""
    usual: Any = None


_TUNED = Counterpart("inductor.max_autotune", usual=False)
_EAGER_NUMBERS = Counterpart("inductor.random", {True: "eager", False: None}, usual=False)
OPTIONS: Mapping[str, Counterpart] = {
    "max_autotune": _TUNED,
    "max_autotune_gemm": _TUNED,
    "max_autotune_pointwise": _TUNED,
    "coordinate_descent_tuning": Counterpart(
        text="tilings are chosen by a model of the device; max_autotune measures them", usual=False
    ),
    "triton.cudagraphs": Counterpart("inductor.cuda_graphs", usual=False),
    "freezing": Counterpart("inductor.freezing", usual=False),
    "fallback_random": _EAGER_NUMBERS,
    "align_random_eager": _EAGER_NUMBERS,
    "deterministic": Counterpart("inductor.deterministic", usual=False),
    "fx_graph_cache": Counterpart("inductor.disk_cache", usual=True),
    "nan_asserts": Counterpart("inductor.check_values", usual=False),
    "layout_optimization": Counterpart("inductor.channels_last", usual=True),
    "trace.enabled": Counterpart(
        "inductor.debug_dir", {True: "flambeau_debug", False: None}, usual=False
    ),
    "trace.debug_dir": Counterpart("inductor.debug_dir"),
    "trace.graph_diagram": Counterpart(
        text="a run with FLAMBEAU_TRACE set has its pictures (`python -m flambeau report`)",
        usual=False,
    ),
    "epilogue_fusion": Counterpart(
        text="epilogues are fused; `skip_passes` leaves out a pass", usual=True
    ),
    "shape_padding": Counterpart(
        text="which operands are padded is decided by the device's tuning data", usual=True
    ),
    "guard_filter_fn": Counterpart(text="every guard stays: an entry runs only where it is right"),
    "use_aoti": Counterpart(
        text="`flambeau.package` makes a file of a compiled function", usual=False
    ),
}
"""The options that have a counterpart, or a reason; others of torch's are said to have none."""

MODES: Mapping[str, str] = {
    "default": "default",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
    "max-autotune-no-cudagraphs": "max-autotune-no-cudagraphs",
    "lite": "default",
    "never-slower": "never-slower",
}
"""Torch's modes, and Flambeau's own, as Flambeau calls them."""

ARGUMENTS: Mapping[str, str] = {
    "name": "reports name graphs by the function and its line",
    "shapes_spec": "sizes are left open by `dynamic=True`, or by marks of tensors",
    "dynamic_shapes": "sizes are left open by `dynamic=True`, or by marks of tensors",
}
"""Arguments of `torch.compile` without a counterpart, and what there is instead."""

LOGS: Mapping[str, str] = {
    "graph_breaks": "breaks",
    "recompiles": "recompiles",
    "recompiles_verbose": "recompiles",
    "guards": "guards",
    "bytecode": "bytecode",
    "graph": "graph",
    "graph_code": "graph",
    "graph_sizes": "graph",
    "aot_graphs": "aot",
    "aot_joint_graph": "aot",
    "post_grad_graphs": "prims",
    "ir_post_fusion": "fusion",
    "fusion": "fusion",
    "schedule": "fusion",
    "output_code": "code",
    "kernel_code": "code",
    "inductor": "summary",
    "dynamo": "frames",
    "perf_hints": "eager",
}
"""Artifacts of TORCH_LOGS, as FLAMBEAU_LOGS calls them."""

_ON, _OFF = {"1": True}, {"0": False}
VARIABLES: Mapping[str, Counterpart] = {
    "TORCH_COMPILE_DISABLE": Counterpart(text="nothing is compiled"),
    "TORCHDYNAMO_DISABLE": Counterpart(text="nothing is compiled"),
    "TORCHINDUCTOR_CACHE_DIR": Counterpart("inductor.cache_dir"),
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": Counterpart("inductor.disk_cache", {"1": False}),
    "TORCH_COMPILE_FORCE_DISABLE_CACHES": Counterpart("inductor.disk_cache", {"1": False}),
    "TORCHINDUCTOR_FX_GRAPH_CACHE": Counterpart("inductor.disk_cache", _OFF),
    "TORCHINDUCTOR_MAX_AUTOTUNE": Counterpart("inductor.max_autotune", _ON),
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM": Counterpart("inductor.max_autotune", _ON),
    "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE": Counterpart("inductor.max_autotune", _ON),
    "TORCHINDUCTOR_FREEZING": Counterpart("inductor.freezing", _ON),
    "TORCHINDUCTOR_DETERMINISTIC": Counterpart("inductor.deterministic", _ON),
    "TORCHINDUCTOR_NAN_ASSERTS": Counterpart("inductor.check_values", _ON),
    "TORCHINDUCTOR_LAYOUT_OPTIMIZATION": Counterpart("inductor.channels_last", _OFF),
    "TORCH_COMPILE_DEBUG": Counterpart("inductor.debug_dir", {"1": "flambeau_debug"}),
    "TORCH_COMPILE_DEBUG_DIR": Counterpart("inductor.debug_dir"),
    "TORCHDYNAMO_DEBUG_FUNCTION": Counterpart("capture.debug_function"),
    "TORCH_LOGS": Counterpart(text="the artifacts of FLAMBEAU_LOGS"),
    "TORCH_TRACE": Counterpart(text="FLAMBEAU_TRACE records a run of Flambeau"),
    "TORCHDYNAMO_REPRO_AFTER": Counterpart(text="FLAMBEAU_REPRO_AFTER does this"),
    "TORCHDYNAMO_REPRO_LEVEL": Counterpart(text="FLAMBEAU_REPRO_LEVEL does this"),
    "TORCHDYNAMO_VERBOSE": Counterpart(text="errors name the user's line in any case"),
}
"""Documented variables of the environment; others of torch's compiler are said to have none."""
PREFIXES = ("TORCH_COMPILE_", "TORCHDYNAMO_", "TORCHINDUCTOR_")
SWITCHES = ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE")

_said: set[str] = set()


def say_once(text: str) -> None:
    """Warn, unless that was said in this process."""
    if text not in _said:
        _said.add(text)
        warn(text)


def mode_of(mode: str | None) -> str | None:
    """A mode as Flambeau calls it; raises UnknownMode."""
    if mode is None:
        return None
    if mode not in MODES:
        raise UnknownMode("mode", mode, MODES)
    if mode == "lite":
        say_once("mode 'lite' has no counterpart in Flambeau: it is the default mode")
    return MODES[mode]


def options_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of torch's inductor as Flambeau's; Flambeau's own pass as they are.

    Raises UnknownOption for what neither has.
    """
    from flambeau.choices import known_options  # it loads what compiles

    ours, found = known_options(), dict[str, Any]()
    for key, value in options.items():
        name = str(key).replace("-", "_")
        if name in OPTIONS:
            found |= _translated(_of_options(name), OPTIONS[name], value)
        elif name in ours:
            found[ours[name]] = value
        elif knows_option(name):
            say_once(f"{_of_options(name)} has no counterpart in Flambeau")
        else:
            raise UnknownOption("option", key, {*OPTIONS, *ours})
    return found


def _of_options(name: str) -> str:
    return f"option {name!r} of torch's inductor"


def options_of_config() -> dict[str, Any]:
    """What the program has set in torch's configuration modules, where it has loaded them."""
    found: dict[str, Any] = {}
    config = loaded("inductor config")
    for name, row in OPTIONS.items() if config is not None else ():
        owner: Any = config
        *sections, last = name.split(".")
        for section in sections:
            owner = getattr(owner, section, None)
        value = getattr(owner, last, row.usual)
        if row.name and value != row.usual:
            found |= _translated("", row, value)
    if getattr(loaded("compiler config"), "force_disable_caches", False):
        found["inductor.disk_cache"] = False
    limit = _of_dynamo("recompile_limit", 8)
    if limit != 8:
        found["capture.cache_size_limit"] = entries(limit)
    return found


def entries(limit: int) -> int:
    """A limit of recompilations as one that capture has room for."""
    return max(1, min(int(limit), MOST_ENTRIES))


def options_of_environment() -> dict[str, Any]:
    """What variables of torch's compiler set; those that mean nothing here are said."""
    found: dict[str, Any] = {}
    for name in sorted(os.environ):
        value, row = os.environ[name].strip(), VARIABLES.get(name)
        if not value or name in ("TORCH_LOGS", *SWITCHES):
            continue
        if row is not None and row.name == "inductor.cache_dir":
            if not os.environ.get("FLAMBEAU_CACHE_DIR") and not _is_torchs_own(Path(value)):
                found[row.name] = str(Path(value) / "flambeau")
        elif row is not None:
            found |= _translated(name, row, value)
        elif name.startswith(PREFIXES):
            say_once(f"{name} has no counterpart in Flambeau")
    return found


def _is_torchs_own(folder: Path) -> bool:
    """Whether it is where torch's inductor has set its variable to itself."""
    return folder.name.startswith("torchinductor_") and folder.parent == Path(tempfile.gettempdir())


def artifacts_of_environment() -> list[str]:
    """What TORCH_LOGS names, as FLAMBEAU_LOGS calls it."""
    asked = filter(None, map(str.strip, os.environ.get("TORCH_LOGS", "").split(",")))
    found = []
    for name in asked:
        plain = name.lstrip("+-")
        if plain in LOGS:
            found += [LOGS[plain]] if not name.startswith("-") else []
        elif plain != "help":
            say_once(f"TORCH_LOGS={plain} has no counterpart in Flambeau: FLAMBEAU_LOGS has others")
    return found


def is_disabled() -> bool:
    """Whether a variable or the configuration turns compiling off."""
    switched_off = any(os.environ.get(name, "0") not in ("", "0") for name in SWITCHES)
    return switched_off or bool(_of_dynamo("disable", False))


def dynamism_of_config() -> bool | None:
    """`dynamic=` where the program gives none."""
    if not (_of_dynamo("dynamic_shapes", True) and _of_dynamo("automatic_dynamic_shapes", True)):
        return False
    return None if _of_dynamo("assume_static_by_default", True) else True


def fails_on_recompile() -> bool:
    """Whether the configuration makes a recompilation an error."""
    return bool(_of_dynamo("error_on_recompile", False))


def _of_dynamo(name: str, usual: Any) -> Any:
    return getattr(loaded("dynamo config"), name, usual)


def _translated(what: str, row: Counterpart, value: Any) -> dict[str, Any]:
    """Our option for a value of theirs; says what became of it where there is none."""
    if not row.name:
        if what and value != row.usual:
            say_once(f"{what} has no counterpart in Flambeau: {row.text}")
        return {}
    ours = value if row.becomes is None else row.becomes.get(value)
    return {} if ours is None else {row.name: ours}
