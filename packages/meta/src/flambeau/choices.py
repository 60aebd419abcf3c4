"""From what a user chose to the options of each stage.

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

#: fields that another argument of `compile` sets, or that meta itself fills in
RESERVED: Mapping[str, frozenset[str]] = {
    "capture": frozenset({"nopython", "dynamic"}),
    "aot": frozenset({"name", "classify"}),
    "inductor": frozenset(),
}


@dataclass(frozen=True)
class Choices:
    """The options of the three stages."""

    capture: flambeau_capture.Options = field(default_factory=flambeau_capture.Options)
    aot: flambeau_aot.Options = field(default_factory=flambeau_aot.Options)
    inductor: flambeau_inductor.Options = field(default_factory=flambeau_inductor.Options)


def known_options() -> dict[str, str]:
    """Every option by name, with the stage it belongs to.

    A name that two stages have is listed as `stage.name`, once for each.
    """
    owners: dict[str, list[str]] = {}
    for stage in fields(Choices):
        for option in fields(getattr(Choices(), stage.name)):
            if option.name not in RESERVED[stage.name]:
                owners.setdefault(option.name, []).append(stage.name)
    known: dict[str, str] = {}
    for name, stages in owners.items():
        for stage_name in stages:
            known[name if len(stages) == 1 else f"{stage_name}.{name}"] = stage_name
    return known


def choose(
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    *,
    nopython: bool = False,
    dynamic: bool = False,
) -> Choices:
    """The options of the stages: the mode's first, then the caller's on top.

    Raises UnknownMode and UnknownOption, both with what is known.
    """
    known = known_options()
    wanted = {**options_of(mode, known), **(options or {})}
    by_stage: dict[str, dict[str, object]] = {stage.name: {} for stage in fields(Choices)}
    for key, value in wanted.items():
        if key not in known:
            raise UnknownOption("option", key, known)
        by_stage[known[key]][key.rpartition(".")[2]] = value
    by_stage["capture"] |= {"nopython": nopython, "dynamic": dynamic}
    start = Choices()
    return Choices(
        capture=replace(start.capture, **by_stage["capture"]),  # type: ignore[arg-type]
        aot=replace(start.aot, **by_stage["aot"]),  # type: ignore[arg-type]
        inductor=replace(start.inductor, **by_stage["inductor"]),  # type: ignore[arg-type]
    )
