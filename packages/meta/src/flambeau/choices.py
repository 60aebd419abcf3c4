"""Translation of the user's choices into options of each stage.

In: `mode` and `options` of `flambeau.compile`. Out: one frozen options object a stage.
Invariant: every key reaches exactly one stage; a key that no stage has is an error, never dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import flambeau_aot
import flambeau_capture
import flambeau_inductor

from flambeau.errors import UnknownOption
from flambeau.modes import options_of
from flambeau.option_values import checked

#: fields that another argument of `compile` sets, or that meta itself fills in
RESERVED: Mapping[str, frozenset[str]] = {
    "capture": frozenset({"nopython", "dynamic", "watch"}),
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
    for stage in fields(Choices):
        for option in fields(getattr(Choices(), stage.name)):
            if option.name not in RESERVED[stage.name]:
                owners.setdefault(option.name, []).append(f"{stage.name}.{option.name}")
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
) -> Choices:
    """The options of the stages: the mode's first, then the caller's on top.

    Raises UnknownMode and UnknownOption, both with what is known, and BadOption.
    """
    known = known_options()
    wanted = {**options_of(mode, known), **(options or {})}
    by_stage: dict[str, dict[str, object]] = {stage.name: {} for stage in fields(Choices)}
    for key, value in wanted.items():
        if key not in known:
            raise UnknownOption("option", key, known)
        stage_name, _, name = known[key].partition(".")
        owner = type(getattr(Choices(), stage_name))
        by_stage[stage_name][name] = checked(owner, stage_name, name, value)
    nopython = checked(flambeau_capture.Options, "capture", "nopython", nopython)
    dynamic = checked(flambeau_capture.Options, "capture", "dynamic", dynamic)
    by_stage["capture"] |= {"nopython": nopython, "dynamic": dynamic}
    start = Choices()
    return Choices(
        capture=replace(start.capture, **by_stage["capture"]),  # type: ignore[arg-type]
        aot=replace(start.aot, **by_stage["aot"]),  # type: ignore[arg-type]
        inductor=replace(start.inductor, **by_stage["inductor"]),  # type: ignore[arg-type]
    )
