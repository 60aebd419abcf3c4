"""One input of a model of transformers, by its name.

In: a parameter's name, a configuration, the number of a variant. Out: a tensor. Invariant: sizes
come from the configuration's own settings; a name that is not in the table is an error with a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from integration_tests.sweep.cases import NotBuilt
from integration_tests.sweep.transformers_models.forms import VOCABULARY

LENGTH, BATCH = 16, 2
Draw = Callable[[Any, int], torch.Tensor]
DRAWS: dict[str, Draw] = {}
TEXT = ("input_ids", "decoder_input_ids", "qformer_input_ids", "title_ids", "classes_input_ids",
        "tasks_input_ids")  # fmt: skip


def draw(name: str, config: Any, variant: int) -> torch.Tensor:
    """A value for the parameter of that name."""
    if name not in DRAWS:
        raise NotBuilt(f"no inputs known for {name}")
    return DRAWS[name](config, variant)


def named(*names: str) -> Callable[[Draw], Draw]:
    def registered(made: Draw) -> Draw:
        DRAWS.update(dict.fromkeys(names, made))
        return made

    return registered


@named(*TEXT)
def _text(config: Any, variant: int) -> torch.Tensor:
    vocabulary = min(int(setting(config, "vocab_size", VOCABULARY)), VOCABULARY)
    length = LENGTH * (4 if variant == 3 else 1)
    books = int(setting(config, "num_codebooks", 0) or setting(config, "num_channels", 0) or 4)
    shapes = {4: (BATCH * books, length), 5: (BATCH, length, books), 1: (BATCH, length, books + 1)}
    shape = shapes.get(variant, (BATCH, length))
    return torch.randint(min(8, vocabulary // 2), max(vocabulary - 16, 2), shape)


@named("pixel_values", "pixel_values_videos", "pixel_values_images", "prompt_pixel_values")
def _pictures(config: Any, variant: int) -> torch.Tensor:
    if "temporal_patch_size" in vars(config):
        return _patches(config, variant)
    return _pixels(config, variant)


@named("flat pixel_values")
def _flat(config: Any, variant: int) -> torch.Tensor:
    return _patches(config, variant)


@named("input_values", "audio_values", "waveform")
def _waves(config: Any, variant: int) -> torch.Tensor:
    shapes = [(BATCH, 3200), (BATCH, 1, 3200), (BATCH, 1024, 128), (BATCH, 16000),
              (BATCH, 64, 128), (BATCH, 1024, 16)]  # fmt: skip
    return torch.randn(shapes[variant])


@named("input_features", "spectrogram", "audio_features", "audio_mel")
def _spectra(config: Any, variant: int) -> torch.Tensor:
    mel = int(setting(config, "num_mel_bins", setting(config, "input_feat_per_channel", 80)))
    width = int(setting(config, "input_dim", setting(config, "input_feat_size", 80)))
    frames = 2 * int(setting(config, "max_source_positions", 64))
    shapes = [(BATCH, mel, frames), (BATCH, 64, mel), (BATCH, 64, width), (BATCH, 1, 1001, 64),
              (BATCH, 80, 64), (BATCH, 64, 160)]  # fmt: skip
    return torch.randn(shapes[variant])


@named("grid_thw", "image_grid_thw", "grid_thws")
def _grid(config: Any, variant: int) -> torch.Tensor:
    return torch.tensor([[1, 4, 4], [1, 4, 4]])


@named("hidden_states")
def _patches(config: Any, variant: int) -> torch.Tensor:
    """Two images of 4 x 4 patches, flat or an image at a time."""
    side = int(setting(config, "patch_size", 14))
    frames = int(setting(config, "temporal_patch_size", 1))
    channels = int(setting(config, "in_channels", setting(config, "num_channels", 3)))
    size = channels * frames * side * side
    shapes = [(32, size), (BATCH, 16, size), (32, channels, side, side)]
    return torch.randn(shapes[variant % 3])


@named("past_values")
def _series(config: Any, variant: int) -> torch.Tensor:
    length, channels = _past(config), int(setting(config, "num_input_channels", 1))
    return torch.randn((BATCH, length, channels) if variant % 2 else (BATCH, length))


def _past(config: Any) -> int:
    """How long a series of the past is: what is looked at, and how far back from there."""
    lags = setting(config, "lags_sequence", [0])
    return int(setting(config, "context_length", LENGTH)) + max(lags, default=0)


def _width(config: Any) -> int:
    return int(setting(config, "hidden_size", 64))


def _table() -> dict[str, Draw]:
    """Inputs that few models take."""

    def ones(*shape: int) -> Draw:
        return lambda config, variant: torch.ones(*shape, dtype=torch.long)

    def noise(*shape: int) -> Draw:
        return lambda config, variant: torch.randn(*shape)

    def wide(length: int) -> Draw:
        return lambda config, variant: torch.randn(BATCH, length, _width(config))

    def times(config: Any, length: int) -> torch.Tensor:
        return torch.randn(BATCH, length, int(setting(config, "num_time_features", 0)))

    def places(config: Any, variant: int) -> torch.Tensor:
        rows = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij"), -1)
        return rows.reshape(1, 16, 2).repeat(BATCH, 1, 1)

    return {
        "bbox": lambda c, v: torch.randint(0, 100, (BATCH, LENGTH, 2)).repeat(1, 1, 2),
        "visual_feats": lambda c, v: torch.randn(
            BATCH, 5, int(setting(c, "visual_feat_dim", 2048))
        ),
        "visual_pos": lambda c, v: torch.rand(BATCH, 5, 4),
        "query_embeds": wide(8),
        "input_features_mask": lambda c, v: torch.ones(
            BATCH, DRAWS["input_features"](c, v).shape[(2, 1, 1, 2, 2, 1)[v]], dtype=torch.long
        ),
        "audio_mel_mask": lambda c, v: torch.zeros(
            BATCH, DRAWS["input_features"](c, v).shape[1], dtype=torch.bool
        ),
        "past_time_features": lambda c, v: times(c, _past(c)),
        "past_observed_mask": lambda c, v: torch.ones(_series(c, v).shape),
        "past_values_padding": lambda c, v: torch.zeros(_series(c, v).shape, dtype=torch.long),
        "freq": lambda c, v: torch.zeros(BATCH, 1, dtype=torch.long),
        "future_values": lambda c, v: torch.randn(BATCH, int(setting(c, "prediction_length", 8))),
        "future_time_features": lambda c, v: times(c, int(setting(c, "prediction_length", 8))),
        "pixel_attention_mask": ones(BATCH, 16),
        "pixel_position_ids": places,
        "image_position_ids": places,
        "spatial_shapes": lambda c, v: torch.tensor([[4, 4], [4, 4]]),
        "merge_sizes": lambda c, v: torch.tensor([1, 1]),
        "prompt_masks": lambda c, v: torch.rand(_pictures(c, v).shape),
        "task_inputs": lambda c, v: torch.randint(1, 40, (BATCH, 77)),
        "states": lambda c, v: torch.randn(BATCH, 4, int(setting(c, "state_dim", 17))),
        "actions": lambda c, v: torch.randn(BATCH, 4, int(setting(c, "act_dim", 4))),
        "rewards": noise(BATCH, 4, 1),
        "returns_to_go": noise(BATCH, 4, 1),
        "timesteps": lambda c, v: torch.arange(4).expand(BATCH, 4).clone(),
        "noise_embeds": wide(LENGTH),
        "inputs_embeds": wide(LENGTH),
        "action_embeds": wide(LENGTH),
        "context_hidden_states": wide(LENGTH),
        "encoder_hidden_states": wide(LENGTH),
        "attention_mask": ones(BATCH, LENGTH),
    }


DRAWS.update(_table())


def _pixels(config: Any, variant: int) -> torch.Tensor:
    size = setting(config, "image_size", 64)
    size = (size, size) if isinstance(size, int) else tuple(size)[:2]
    channels = int(setting(config, "num_channels", 3) or 3)
    frames = int(setting(config, "num_frames", 4) or 4)
    shapes = [
        (BATCH, channels, *size),
        (BATCH, frames, channels, *size),
        (BATCH, channels, 224, 224),
        (BATCH, 3, 64, 64),
        (BATCH, 3, 256, 256),
        (BATCH, 2, channels, *size),
    ]
    return torch.rand(shapes[variant])


def setting(config: Any, name: str, default: Any) -> Any:
    """A setting of the configuration or of the first of its parts that has it."""
    if getattr(config, name, None) is not None:
        return getattr(config, name)
    for value in vars(config).values():
        if hasattr(value, "to_dict") and getattr(value, name, None) is not None:
            return getattr(value, name)
    return default
