"""Models at the sizes that GPUs are bought for.

In: a device, whether to train, whether to be quick (then as small as any other). Out: a `Workload`.
Invariant: a name ends with the batch, and the length of its sequences; the reference is float32's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.zoo.models import DISTILBERT, GPT2, NO_DROPOUT, Builder, language, vision
from benchmarks.zoo.networks import DiffusionTransformer, DiffusionUNet
from benchmarks.zoo.own import dlrm, gnn, supervised
from benchmarks.zoo.workload import Workload

Settings = dict[str, Any]


def _gpt2(layers: int, width: int) -> Settings:
    shape = {"n_layer": layers, "n_embd": width, "n_head": width // 64}
    return GPT2 | shape | {"vocab_size": 50257, "n_positions": 1024}


def _bert(layers: int, width: int) -> Settings:
    shape = {"num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": width // 64}
    return NO_DROPOUT | shape | {"intermediate_size": 4 * width, "vocab_size": 30522}


def _llama(layers: int, width: int, inner: int) -> Settings:
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": width // 64,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
        "max_position_embeddings": 8192,
    }


T5_BASE = {
    "d_model": 768,
    "d_ff": 3072,
    "d_kv": 64,
    "num_layers": 12,
    "num_heads": 12,
    "vocab_size": 32128,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}
DISTILBERT_BASE = DISTILBERT | {
    "dim": 768,
    "hidden_dim": 3072,
    "n_layers": 6,
    "n_heads": 12,
    "vocab_size": 30522,
}
MIXTRAL = _llama(8, 1024, 3584) | {
    "vocab_size": 32000,
    "tie_word_embeddings": False,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


def denoiser(
    module: Callable[[], torch.nn.Module], channels: int, batch: int,
    device: str, training: bool, quick: bool,
) -> Workload:  # fmt: skip
    """The noise in latents of images of 512 pixels."""
    size, batch = (16, 1) if quick else (64, batch)
    images = torch.randn(batch, channels, size, size, device=device)
    steps = torch.randint(0, 1000, (batch,), device=device)
    return supervised(module(), (images, steps), torch.randn_like(images), F.mse_loss, training)


def _by_float32(builder: Builder) -> Builder:
    def built(device: str, training: bool, quick: bool) -> Workload:
        return replace(builder(device, training, quick), exact=torch.float32)

    return built


def _lm(model: str, settings: Settings, batch: int, length: int, **more: Any) -> Builder:
    return partial(language, model, model_config(model), settings, length, batch=batch, **more)


def model_config(model: str) -> str:
    """The configuration's class of a class of transformers."""
    return model.partition("For")[0].replace("LMHeadModel", "") + "Config"


LARGE: dict[str, Builder] = {
    name: _by_float32(builder)
    for name, builder in {
        "resnet50_64": partial(vision, "resnet50", 224),
        "resnet50_256": partial(vision, "resnet50", 224, batch=256),
        "vit_b_64": partial(vision, "vit_b_16", 224),
        "vit_l_64": partial(vision, "vit_l_16", 224),
        "convnext_tiny_64": partial(vision, "convnext_tiny", 224),
        "swin_t_64": partial(vision, "swin_t", 224),
        "efficientnet_b0_64": partial(vision, "efficientnet_b0", 224),
        "efficientnet_b4_64": partial(vision, "efficientnet_b4", 224),
        "gpt2_124m_16x512": _lm("GPT2LMHeadModel", _gpt2(12, 768), 16, 512),
        "gpt2_124m_8x1024": _lm("GPT2LMHeadModel", _gpt2(12, 768), 8, 1024),
        "gpt2_355m_16x512": _lm("GPT2LMHeadModel", _gpt2(24, 1024), 16, 512),
        "bert_base_16x512": _lm("BertForMaskedLM", _bert(12, 768), 16, 512),
        "bert_large_16x512": _lm("BertForMaskedLM", _bert(24, 1024), 16, 512),
        "distilbert_16x512": _lm("DistilBertForMaskedLM", DISTILBERT_BASE, 16, 512),
        "t5_base_16x512": _lm("T5ForConditionalGeneration", T5_BASE, 16, 512, decoder_inputs=True),
        "llama_1b_4x1024": _lm("LlamaForCausalLM", _llama(16, 2048, 8192), 4, 1024),
        "llama_1b_1x4096": _lm("LlamaForCausalLM", _llama(16, 2048, 8192), 1, 4096),
        "llama_3b_1x4096": _lm("LlamaForCausalLM", _llama(28, 3072, 8192), 1, 4096),
        "mixtral_4x1024": _lm("MixtralForCausalLM", MIXTRAL, 4, 1024),
        "dlrm_8192": partial(dlrm, tables=26, rows=500_000, batch=8192),
        "gnn_1m": partial(gnn, nodes=125_000),
        "unet_512px_8": partial(denoiser, partial(DiffusionUNet, 320, 4), 4, 8),
        "dit_512px_8": partial(denoiser, DiffusionTransformer, 4, 8),
    }.items()
}
