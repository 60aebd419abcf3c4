"""Inputs for models of transformers, by the names of forward's parameters.

In: a model and its configuration. Out: functions that draw inputs. Invariant: what is drawn depends
on names and settings alone; whether a draw will do, eager says.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from integration_tests.sweep.cases import Inputs
from integration_tests.sweep.transformers_models.draws import BATCH, DRAWS, draw

MEDIA = ("pixel_values", "input_features", "input_values")
MASKS = ("input_features_mask", "pixel_attention_mask", "spatial_shapes", "past_observed_mask",
         "image_grid_thw", "grid_thw", "pixel_position_ids")  # fmt: skip
TOLD = ("bbox", "visual_feats", "visual_pos", "encoder_hidden_states", "actions", "rewards",
        "returns_to_go", "timesteps")  # fmt: skip
NEVER_ALONE = ("encoder_hidden_states",)
VARIANTS = 7


FED = (*MEDIA, "hidden_states")  # what the first layers take as it is


def _wanted(module: torch.nn.Module) -> tuple[int, ...] | None:
    """The sizes that the first layer with weights takes; None for an embedding."""
    for part in module.modules():
        if isinstance(part, torch.nn.Embedding):
            return None
        if isinstance(part, torch.nn.Linear):
            return (BATCH, 64, part.in_features)
        if isinstance(part, torch.nn.LayerNorm):
            return (BATCH, 64, *part.normalized_shape)
        if isinstance(part, torch.nn.Conv1d):
            return (BATCH, part.in_channels, 640)
        if isinstance(part, torch.nn.Conv2d):
            return (BATCH, part.in_channels, 64, 64)
    return None


def candidates(module: torch.nn.Module, config: Any) -> Iterator[Any]:
    """Functions that draw inputs, most complete first."""
    known = inspect.signature(module.forward).parameters
    needed = [name for name, one in known.items() if one.default is inspect.Parameter.empty
              and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]  # fmt: skip
    main = getattr(module, "main_input_name", "input_ids")
    main = main if isinstance(main, str) else main[0]
    main = main if main in known or not needed else needed[0]
    if main not in known and not needed:
        return  # a class whose parts are called, not itself
    decoder = "decoder_input_ids" in known and getattr(config, "is_encoder_decoder", False)
    images = [name for name in ("pixel_values",) if name in known and name != main]
    told = [name for name in TOLD if name in known and name not in NEVER_ALONE]
    media = [name for name in MEDIA if name in known and name != main]
    masks = [name for name in MASKS if name in known]
    given = [name for name in known if name in DRAWS]
    sets = (needed, [*needed, *images], [*told, *needed], [*told, *needed, *images],
            [*needed, *media], [*needed, *masks], [*media, *masks, *needed], given)  # fmt: skip
    grids = {"grid_thw", "image_grid_thw", "grid_thws", "spatial_shapes", "pixel_position_ids"}
    flat = {"pixel_values": "flat pixel_values"} if grids & set(known) else {}
    tried: set[tuple[frozenset[str], int, bool]] = set()
    wanted = _wanted(module)

    def one(name: str, variant: int) -> torch.Tensor:
        if name in FED and variant == VARIANTS - 1 and wanted is not None:
            return torch.randn(wanted)
        return draw(flat.get(name, name), config, variant % (VARIANTS - 1))

    for cache in (True, False) if "use_cache" in known else (True,):
        for extra in sets:
            names = tuple(dict.fromkeys((main, *extra)))
            if not set(needed) <= set(names):
                continue  # Python would say no more than that one is missing
            for variant in range(VARIANTS):
                if (frozenset(names), variant, cache) in tried:
                    continue
                tried.add((frozenset(names), variant, cache))
                if names == ("input_ids",) and variant == 1:
                    continue

                def make(
                    variant: int = variant, names: tuple[str, ...] = names, cache: bool = cache
                ) -> Inputs:
                    made: Inputs = {name: one(name, variant) for name in names}
                    if main == "input_ids" and "attention_mask" in known and variant != 2:
                        mask = torch.ones(made["input_ids"].shape[:2], dtype=torch.long)
                        mask[1, -3:] = 0
                        made["attention_mask"] = mask
                    if decoder and "decoder_input_ids" not in made:
                        made["decoder_input_ids"] = draw("input_ids", config, 0)[:, :8]
                    if "return_loss" in known and variant == 1:
                        made["return_loss"] = False
                    if not cache:
                        made["use_cache"] = False
                    return made

                yield make
