"""Translation and validation of the user's choices, into options of each stage.

In: `mode` and `options` of `flambeau.compile`. Out: one frozen options object a stage.
Invariant: every key reaches exactly one stage, never dropped; what a value may be is read off the
field's annotation and, for numbers and names, the tables here.
"""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import flambeau_aot
import flambeau_capture
import flambeau_inductor

from flambeau.errors import BadOption, UnknownMode, UnknownOption
from flambeau.packaging.processors import features, known_processor, needed_by

MODES: Mapping[str, Mapping[str, object]] = {
    "default": {},
    "max-autotune": {"max_autotune": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "cuda_graphs": False},
    "reduce-overhead": {"cuda_graphs": True},
    "never-slower": {},  # how graphs are served, not how they are compiled
}


def options_of(mode: str | None) -> Mapping[str, object]:
    """The options that a mode sets. Raises UnknownMode."""
    if mode is None:
        return {}
    if not isinstance(mode, str) or mode not in MODES:
        raise UnknownMode("mode", mode, MODES)
    return MODES[mode]


#: the least and the most of numbers; those that are not here are not negative
LIMITS: Mapping[str, tuple[float, float]] = {
    "capture.cache_size_limit": (1, float("inf")),
    "capture.step_limit": (1, float("inf")),
    "capture.idle_step_limit": (1, float("inf")),
    "inductor.threads": (1, float("inf")),
    "aot.recompute_share": (0, 1),
}
#: numbers that are a share where they are a float, and an amount where they are an int
SHARES = frozenset({"aot.memory_budget"})
#: fields that are arguments of `compile`, by their names there
ARGUMENTS: Mapping[str, str] = {"nopython": "fullgraph", "dynamic": "dynamic"}
#: folders that are written to
WRITTEN = frozenset({"inductor.debug_dir", "capture.record_failures"})


def checked(stage: str, name: str, value: object) -> Any:
    """`value` for the field `name` of the options of a stage; raises BadOption."""
    hint = _hints(STAGES[stage])[name]
    if isinstance(value, os.PathLike) and str in get_args(hint):
        value = os.fspath(value)
    full = ARGUMENTS.get(name, f"{stage}.{name}")
    fits, words = _form(hint)
    if not fits(value):
        raise BadOption(full, value, words)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        least, most = LIMITS.get(full, (0, float("inf")))
        if not least <= value <= most:
            above = "on" if most == float("inf") else f"to {most}"
            raise BadOption(full, value, f"a number from {least} {above}")
        if full in SHARES and isinstance(value, float) and value > 1:
            raise BadOption(full, value, "a float from 0 to 1, or an int")
    if full == "inductor.skip_passes":
        from flambeau_inductor.pipeline import skippable  # every pass, which few programs name

        known = skippable()
        if not known.issuperset(value):  # type: ignore[arg-type]
            raise BadOption(full, value, f"names out of {', '.join(sorted(known))}")
    if full == "inductor.processor" and value is not None:
        known_processor(str(value), full)
        if not needed_by(str(value)) <= features():
            raise BadOption(full, value, "a processor of which this one can all")
    if full in WRITTEN and value is not None:
        try:
            Path(str(value)).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadOption(full, value, f"a folder that can be written ({error})") from error
    return value


_hints: Any = functools.cache(get_type_hints)


@functools.cache
def _form(hint: Any) -> tuple[Callable[[Any], bool], str]:
    """Whether a value fits an annotation, and the annotation as words of Python."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: True, "anything"
    if origin in (Union, types.UnionType):
        forms = [_form(part) for part in parts]
        return lambda value: any(fits(value) for fits, _ in forms), " or ".join(w for _, w in forms)
    if origin is Literal:
        return parts.__contains__, ", ".join(map(repr, parts))
    if origin is tuple:
        fits, words = _form(parts[0])
        return (
            lambda value: isinstance(value, tuple) and all(map(fits, value)),
            f"a tuple of {words}",
        )
    if hint in (int, float):
        kinds, words = (int, hint), hint.__name__
        return lambda value: isinstance(value, kinds) and not isinstance(value, bool), words
    if hint is Callable or (isinstance(origin, type) and issubclass(origin, Callable)):  # type: ignore[arg-type]
        return callable, "a callable"
    words = "None" if hint is type(None) else getattr(hint, "__name__", str(hint))
    return lambda value: isinstance(value, origin or hint), words


STAGES: Mapping[str, type[Any]] = {
    "capture": flambeau_capture.Options,
    "aot": flambeau_aot.Options,
    "inductor": flambeau_inductor.Options,
}
#: fields that another argument of `compile` sets, or that meta itself fills in
RESERVED: Mapping[str, frozenset[str]] = {
    "capture": frozenset({"nopython", "dynamic", "sizes", "watch"}),
    "aot": frozenset({"name", "classify"}),
    "inductor": frozenset({"observer"}),
}


@dataclass(frozen=True)
class Choices:
    """The options of the three stages."""

    capture: flambeau_capture.Options = field(default_factory=flambeau_capture.Options)
    aot: flambeau_aot.Options = field(default_factory=flambeau_aot.Options)
    inductor: flambeau_inductor.Options = field(default_factory=flambeau_inductor.Options)

    def comparable(self) -> Choices:
        """The same with eager's random numbers, without which no answer can be compared."""
        return replace(self, inductor=replace(self.inductor, random="eager"))


def known_options() -> dict[str, str]:
    """Every option as `stage.name`, by each spelling: the full one, and `name` where unique."""
    owners: dict[str, list[str]] = {}
    for stage, options in STAGES.items():
        for option in fields(options):
            if option.name not in RESERVED[stage]:
                owners.setdefault(option.name, []).append(f"{stage}.{option.name}")
    known = {full: full for names in owners.values() for full in names}
    return known | {name: full[0] for name, full in owners.items() if len(full) == 1}


def of_stage(options: Mapping[str, object], stage: str) -> dict[str, object]:
    """The options that are spelled in full for one stage."""
    return {key: value for key, value in options.items() if str(key).startswith(f"{stage}.")}


def choose(
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    *,
    nopython: bool = False,
    dynamic: bool | None = None,
    sizes: Mapping[str, object] | None = None,
) -> Choices:
    """The options of the stages: the mode's first, then the caller's on top.

    Raises UnknownMode and UnknownOption, both with what is known, and BadOption.
    """
    known = known_options()
    given: dict[str, dict[str, Any]] = {stage: {} for stage in STAGES}
    for key, value in {**options_of(mode), **(options or {})}.items():
        if key not in known:
            raise UnknownOption("option", key, known)
        stage, _, name = known[key].partition(".")
        given[stage][name] = checked(stage, name, value)
    for name, value in (("nopython", nopython), ("dynamic", dynamic)):
        given["capture"][name] = checked("capture", name, value)
    given["capture"]["sizes"] = sizes
    return Choices(**{stage: STAGES[stage](**own) for stage, own in given.items()})
