"""Inputs for models of transformers, by the names of forward's parameters.

In: a model and its configuration. Out: functions that draw inputs. Invariant: what is drawn depends
on names and settings alone; whether a draw will do, eager says.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from integration_tests.sweep.cases import Inputs, NotBuilt
from integration_tests.sweep.transformers_forms import VOCABULARY

LENGTH, BATCH = 16, 2
TEXT = ("input_ids", "decoder_input_ids", "qformer_input_ids", "title_ids")


def candidates(module: torch.nn.Module, config: Any) -> Iterator[Any]:
    """Functions that draw inputs, most complete first."""
    known = inspect.signature(module.forward).parameters
    needed = [name for name, one in known.items() if one.default is inspect.Parameter.empty
              and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]  # fmt: skip
    main = getattr(module, "main_input_name", "input_ids")
    main = main if isinstance(main, str) else main[0]
    main = main if main in known or not needed else needed[0]
    decoder = "decoder_input_ids" in known and getattr(config, "is_encoder_decoder", False)
    images = [name for name in ("pixel_values",) if name in known and name != main]
    told = [name for name in ("bbox", "visual_feats", "visual_pos") if name in known]
    for extra in ([], images, [*told, *needed], [*told, *needed, *images]):
        for variant in range(6):

            def make(variant: int = variant, extra: list[str] = extra) -> Inputs:
                made: Inputs = {}
                for name in dict.fromkeys((main, *extra)):
                    made[name] = _draw(name, config, variant)
                if main == "input_ids" and "attention_mask" in known and variant != 2:
                    mask = torch.ones_like(made["input_ids"])
                    mask[1, -3:] = 0
                    made["attention_mask"] = mask
                if decoder:
                    made["decoder_input_ids"] = _draw("input_ids", config, 0)[:, :8]
                if "return_loss" in known and variant == 1:
                    made["return_loss"] = False
                return made

            if main in ("input_ids",) and variant not in (0, 2, 3) and not extra:
                continue
            yield make


def _draw(name: str, config: Any, variant: int) -> torch.Tensor:
    if name in TEXT:
        vocabulary = min(int(setting(config, "vocab_size", VOCABULARY)), VOCABULARY)
        length = LENGTH * (4 if variant == 3 else 1)
        return torch.randint(min(8, vocabulary // 2), max(vocabulary - 16, 2), (BATCH, length))
    if name in ("pixel_values", "pixel_values_videos", "pixel_values_images"):
        return _patches(config) if _takes_grid(config) else _pixels(config, variant)
    if name in ("input_values", "audio_values", "waveform"):
        shapes = [(BATCH, 3200), (BATCH, 1, 3200), (BATCH, 1024, 128), (BATCH, 16000),
                  (BATCH, 64, 128), (BATCH, 1024, 16)]  # fmt: skip
        return torch.randn(shapes[variant])
    if name in ("input_features", "spectrogram", "audio_features", "audio_mel"):
        mel = int(setting(config, "num_mel_bins", setting(config, "input_feat_per_channel", 80)))
        width = int(setting(config, "input_dim", setting(config, "input_feat_size", 80)))
        frames = 2 * int(setting(config, "max_source_positions", 64))
        shapes = [(BATCH, mel, frames), (BATCH, 64, mel), (BATCH, 64, width), (BATCH, 1, 1001, 64),
                  (BATCH, 80, 64), (BATCH, 64, 160)]  # fmt: skip
        return torch.randn(shapes[variant])
    if name in ("grid_thw", "image_grid_thw"):
        return torch.tensor([[1, 4, 4], [1, 4, 4]])
    if name == "hidden_states":
        return _patches(config)
    return _named(name, config, variant)


def _named(name: str, config: Any, variant: int) -> torch.Tensor:
    """Inputs that few models take."""
    width = int(setting(config, "hidden_size", 64))
    length = int(setting(config, "context_length", LENGTH))
    channels = int(setting(config, "num_input_channels", 1))
    made: dict[str, torch.Tensor] = {
        "bbox": torch.randint(0, 100, (BATCH, LENGTH, 2)).repeat(1, 1, 2),
        "visual_feats": torch.randn(BATCH, 5, int(setting(config, "visual_feat_dim", 2048))),
        "visual_pos": torch.rand(BATCH, 5, 4),
        "query_embeds": torch.randn(BATCH, 8, width),
        "input_features_mask": torch.ones(BATCH, 64, dtype=torch.long),
        "past_values": torch.randn((BATCH, length, channels) if variant else (BATCH, length)),
        "pixel_attention_mask": torch.ones(BATCH, 16, dtype=torch.long),
        "spatial_shapes": torch.tensor([[4, 4], [4, 4]]),
        "states": torch.randn(BATCH, 4, int(setting(config, "state_dim", 17))),
        "actions": torch.randn(BATCH, 4, int(setting(config, "act_dim", 4))),
        "rewards": torch.randn(BATCH, 4, 1),
        "returns_to_go": torch.randn(BATCH, 4, 1),
        "timesteps": torch.arange(4).expand(BATCH, 4).clone(),
        "noise_embeds": torch.randn(BATCH, LENGTH, width),
        "inputs_embeds": torch.randn(BATCH, LENGTH, width),
        "encoder_hidden_states": torch.randn(BATCH, LENGTH, width),
        "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long),
    }
    if name not in made:
        raise NotBuilt(f"no inputs known for {name}")
    return made[name]


def _takes_grid(config: Any) -> bool:
    return "temporal_patch_size" in vars(config)


def _patches(config: Any) -> torch.Tensor:
    """Two images of 4 x 4 patches, flat."""
    side = int(setting(config, "patch_size", 14))
    frames = int(setting(config, "temporal_patch_size", 1))
    channels = int(setting(config, "in_channels", setting(config, "num_channels", 3)))
    return torch.randn(32, channels * frames * side * side)


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
