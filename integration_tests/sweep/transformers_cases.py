"""Every architecture of transformers' auto mappings, at a fraction of its size.

In: nothing. Out: cases. Invariant: a configuration is the library's default with sizes, depths and
vocabularies cut down by name; what a form of it cannot build or run, the next form tries.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from benchmarks.zoo.torchvision_cpu import torchvision
from integration_tests.sweep.cases import Case, Inputs, NotBuilt, Subject, runs

LIMIT = 120_000_000  # parameters
VOCABULARY, LENGTH, BATCH = 320, 16, 2

DEPTH = (
    "num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "n_layers",
    "num_encoder_layers", "num_decoder_layers", "decoder_num_hidden_layers", "depth",
    "encoder_num_hidden_layers", "num_blocks", "t2u_encoder_layers", "t2u_decoder_layers",
    "speech_encoder_layers", "num_block_repeats", "text_encoder_layers", "num_hidden_groups",
)  # fmt: skip
WIDTH = (
    "hidden_size", "d_model", "n_embd", "embed_dim", "embedding_size", "emb_dim", "dim",
    "hidden_dim", "projection_dim", "encoder_hidden_size", "decoder_hidden_size",
    "embedding_dim", "cross_attention_hidden_size", "word_embed_proj_dim", "pooler_hidden_size",
)  # fmt: skip
HEADS = (
    "num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "n_heads",
    "decoder_attention_heads", "decoder_num_attention_heads", "encoder_num_attention_heads",
)  # fmt: skip
INNER = (
    "intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "mlp_dim",
    "moe_intermediate_size", "ffn_hidden_size", "decoder_intermediate_size", "n_inner", "dff",
    "shared_expert_intermediate_size", "dim_feedforward", "inner_dim", "shared_intermediate_size",
)  # fmt: skip
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def cases(every: bool) -> Iterator[Case]:
    """The base class of every model type; all its classes if asked for."""
    torchvision()
    import transformers  # slow to import, and only this family needs it
    from transformers.models.auto import modeling_auto

    transformers.logging.set_verbosity_error()
    seen: set[str] = set()
    tables = [modeling_auto.MODEL_MAPPING_NAMES]
    if every:
        names = sorted(n for n in dir(modeling_auto) if n.endswith("_MAPPING_NAMES"))
        tables += [getattr(modeling_auto, n) for n in names if n.startswith("MODEL_FOR_")]
    for table in tables:
        for model_type, classes in sorted(table.items()):
            for kind in (classes,) if isinstance(classes, str) else classes:
                if kind not in seen:
                    seen.add(kind)
                    yield Case(kind, "transformers", partial(_build, model_type, kind))


def _build(model_type: str, kind: str) -> Subject:
    import transformers  # imported by `cases` before

    model_class = getattr(transformers, kind, None)
    if model_class is None:
        raise NotBuilt("no such class")
    config_class = getattr(model_class, "config_class", None)
    if config_class is None:
        config_class = transformers.AutoConfig.for_model(model_type).__class__
    tried: list[str] = []
    for form in ("small", "narrow", "shallow"):
        try:
            config = shrunk(config_class, form)
            module = _module(model_class, config)
        except Exception as error:  # the library's own refusal; the next form may do
            tried.append(f"{form}: {type(error).__name__}: {error}"[:160])
            continue
        for make in candidates(module, config):
            told = runs(module, make())
            if told is None:
                return Subject(module, (make(), make()))
            tried.append(f"{form}: {told}")
    raise NotBuilt("; ".join(dict.fromkeys(tried)) or "no inputs known")


def _module(model_class: Any, config: Any) -> torch.nn.Module:
    with torch.device("meta"):
        count = sum(p.numel() for p in model_class(config).parameters())
    if count > LIMIT:
        raise NotBuilt(f"{count / 1e6:.0f} million parameters")
    module: torch.nn.Module = model_class(config)
    return module


def shrunk(config_class: Any, form: str) -> Any:
    """A configuration cut down. small: everything; narrow: not widths; shallow: depth alone."""
    return config_class(**_changes(config_class(), form))


def _changes(config: Any, form: str) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, value in vars(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            changes[name] = {**value.to_dict(), **_changes(value, form)}
            for derived in ("layer_types", "mlp_layer_types", "block_types"):
                if "num_hidden_layers" in changes[name]:
                    changes[name].pop(derived, None)
    lists = any(isinstance(getattr(config, name, None), list | tuple) for name in (*HEADS, *WIDTH))
    wide = form == "small" and not lists
    table: dict[str, int] = dict.fromkeys(DEPTH, 2)
    if form != "shallow":
        table |= {"vocab_size": VOCABULARY, "max_position_embeddings": 128, "n_positions": 128}
        table |= dict.fromkeys(EXPERTS, 4) | {"num_experts_per_tok": 2, "image_size": 64}
        table |= dict.fromkeys(INNER, 128)
    if wide:
        table |= dict.fromkeys(WIDTH, 64) | dict.fromkeys(HEADS, 4)
        table |= {"num_key_value_heads": 2, "head_dim": 16, "d_kv": 16, "num_kv_heads": 2}
    for name, small in table.items():
        for spelled in (name, config.attribute_map.get(name)):
            value = getattr(config, spelled, None) if spelled else None
            if isinstance(value, int) and not isinstance(value, bool) and value > small:
                changes[spelled] = small  # type: ignore[index]
    for name, value in vars(config).items():
        special = name.endswith(("_token_id", "_token_index", "_id"))
        if special and isinstance(value, int) and "vocab_size" in changes:
            if value >= VOCABULARY:
                changes[name] = VOCABULARY - 1 - value % 7
        if name == "use_pretrained_backbone":
            changes[name] = False
        if name == "depths" and isinstance(value, list | tuple):
            changes[name] = [min(int(v), 2) for v in value]
    return changes


def candidates(module: torch.nn.Module, config: Any) -> Iterator[Any]:
    """Functions that draw inputs, most complete first."""
    known = inspect.signature(module.forward).parameters
    main = getattr(module, "main_input_name", "input_ids")
    decoder = "decoder_input_ids" in known and getattr(config, "is_encoder_decoder", False)
    images = [name for name in ("pixel_values",) if name in known and name != main]
    for extra in ([], images):
        for variant in range(6):

            def make(variant: int = variant, extra: list[str] = extra) -> Inputs:
                made: Inputs = {}
                for name in (main, *extra):
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
    if name in ("input_ids", "decoder_input_ids"):
        vocabulary = _setting(config, "vocab_size", VOCABULARY)
        length = LENGTH * (4 if variant == 3 else 1)
        return torch.randint(8, min(int(vocabulary), VOCABULARY) - 16, (BATCH, length))
    if name in ("pixel_values", "pixel_values_videos", "pixel_values_images"):
        return _pixels(config, variant)
    if name in ("input_values", "audio_values", "waveform"):
        shapes = [(BATCH, 3200), (BATCH, 1, 3200), (BATCH, 1024, 128), (BATCH, 16000),
                  (BATCH, 64, 128), (BATCH, 1024, 16)]  # fmt: skip
        return torch.randn(shapes[variant])
    if name in ("input_features", "spectrogram", "audio_features"):
        mel = int(_setting(config, "num_mel_bins", _setting(config, "input_feat_per_channel", 80)))
        frames = 2 * int(_setting(config, "max_source_positions", 64))
        shapes = [(BATCH, mel, frames), (BATCH, 64, mel), (BATCH, 64, 160), (BATCH, 1, 1001, 64),
                  (BATCH, 80, 64), (BATCH, 64, 80)]  # fmt: skip
        return torch.randn(shapes[variant])
    if name == "past_values":
        raise NotBuilt("time series")
    raise NotBuilt(f"no inputs known for {name}")


def _pixels(config: Any, variant: int) -> torch.Tensor:
    size = _setting(config, "image_size", 64)
    size = size if isinstance(size, int) else int(tuple(size)[0])
    channels = int(_setting(config, "num_channels", 3) or 3)
    frames = int(_setting(config, "num_frames", 4) or 4)
    shapes = [
        (BATCH, channels, size, size),
        (BATCH, frames, channels, size, size),
        (BATCH, channels, 224, 224),
        (BATCH, 3, 64, 64),
        (BATCH, 3, 256, 256),
        (BATCH, 1, channels, size, size),
    ]
    return torch.rand(shapes[variant])


def _setting(config: Any, name: str, default: Any) -> Any:
    """A setting of the configuration or of the first of its parts that has it."""
    if getattr(config, name, None) is not None:
        return getattr(config, name)
    for value in vars(config).values():
        if hasattr(value, "to_dict") and getattr(value, name, None) is not None:
            return getattr(value, name)
    return default
