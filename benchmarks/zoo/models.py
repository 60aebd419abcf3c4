"""Models of torchvision, timm and transformers, built from their configurations.

In: a device, whether to train, whether to be quick. Out: a `Workload` whose first output is a
loss in training. Invariant: no weights are downloaded, dropout is off, sizes are small on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.zoo.own import OWN
from benchmarks.zoo.torchvision_cpu import torchvision
from benchmarks.zoo.workload import Workload

Builder = Callable[[str, bool, bool], Workload]


class DigitsCNN(nn.Module):
    """The small convolutional network of the demo."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        )
        self.head = nn.Linear(64 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).flatten(1))


def classifier(module: nn.Module, shape: tuple[int, ...], device: str, training: bool) -> Workload:
    module = module.to(device).train(training)
    x = torch.randn(shape, device=device)
    if not training:
        return Workload(module, (x,), module)
    with torch.no_grad():
        classes = module.eval()(x[:1]).shape[-1]
    target = torch.randint(0, classes, (shape[0],), device=device)
    module.train()

    def loss(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(module(x), target)

    return Workload(loss, (x, target), module, training=True)


def _batch(device: str, quick: bool, cpu: int, cuda: int) -> int:
    return 2 if quick else (cuda if device == "cuda" else cpu)


def _digits(device: str, training: bool, quick: bool) -> Workload:
    return classifier(DigitsCNN(), (64, 1, 8, 8), device, training)


def vision(
    name: str, size: int, device: str, training: bool, quick: bool, *, batch: int = 64
) -> Workload:
    module = getattr(torchvision().models, name)()
    for part in module.modules():
        if isinstance(part, nn.Dropout) or type(part).__name__ == "StochasticDepth":
            part.p = 0.0
    return classifier(module, (_batch(device, quick, 4, batch), 3, size, size), device, training)


def _timm(name: str, device: str, training: bool, quick: bool, **arguments: Any) -> Workload:
    torchvision()
    import timm  # slow to import, and only some cases need it

    module = timm.create_model(name, **arguments)
    size = module.default_cfg["input_size"][-1]
    return classifier(module, (_batch(device, quick, 2, 64), 3, size, size), device, training)


def language(
    model: str,
    config: str,
    settings: dict[str, Any],
    length: int,
    device: str,
    training: bool,
    quick: bool,
    *,
    decoder_inputs: bool = False,
    batch: int = 16,
) -> Workload:
    """batch: on a GPU."""
    torchvision()
    import transformers  # slow to import, and only some cases need it

    kind = getattr(transformers, config)(**settings)
    kind.use_cache = False
    module = getattr(transformers, model)(kind).to(device).train(training)
    shape = (_batch(device, quick, 4, batch), 16 if quick else length)
    tokens = torch.randint(3, kind.vocab_size, shape, device=device)
    if not training:
        if decoder_inputs:
            return Workload(
                lambda ids: module(input_ids=ids, decoder_input_ids=ids)[0], (tokens,), module
            )
        return Workload(lambda ids: module(input_ids=ids)[0], (tokens,), module)

    def loss(ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = module(input_ids=ids, labels=ids).loss
        return result

    return Workload(loss, (tokens,), module, training=True)


def _whisper(device: str, training: bool, quick: bool) -> Workload:
    """Speech to text: convolutions over a spectrogram, an encoder, a decoder."""
    torchvision()
    import transformers  # slow to import, and only some cases need it

    kind = transformers.WhisperConfig(**WHISPER)
    kind.use_cache = False
    module = transformers.WhisperForConditionalGeneration(kind).to(device).train(training)
    batch = _batch(device, quick, 2, 16)
    sound = torch.randn(batch, kind.num_mel_bins, 2 * kind.max_source_positions, device=device)
    tokens = torch.randint(3, kind.vocab_size, (batch, 8 if quick else 48), device=device)
    if not training:
        return Workload(
            lambda f, ids: module(input_features=f, decoder_input_ids=ids)[0],
            (sound, tokens),
            module,
        )

    def loss(features: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = module(input_features=features, labels=ids).loss
        return result

    return Workload(loss, (sound, tokens), module, training=True)


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MINILM = NO_DROPOUT | {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
GPT2 = {
    "n_layer": 4,
    "n_embd": 256,
    "n_head": 4,
    "vocab_size": 8000,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
LLAMA = {
    "hidden_size": 256,
    "intermediate_size": 688,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 8000,
}
T5 = {
    "d_model": 256,
    "d_ff": 1024,
    "d_kv": 64,
    "num_layers": 3,
    "num_heads": 4,
    "vocab_size": 8000,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
}
WHISPER = {
    "d_model": 256,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "max_source_positions": 200,
    "max_target_positions": 64,
    "vocab_size": 4000,
    "dropout": 0.0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
SWIN = {"embed_dim": 48, "depths": (1, 1, 2, 1), "num_heads": (2, 4, 8, 16), "drop_path_rate": 0.0}
DISTILBERT = {
    "dim": 256,
    "hidden_dim": 1024,
    "n_layers": 3,
    "n_heads": 4,
    "vocab_size": 8000,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}

MODELS: dict[str, Builder] = {
    "digits_cnn": _digits,
    "minilm": partial(language, "BertForMaskedLM", "BertConfig", MINILM, 128),
    "resnet18": partial(vision, "resnet18", 128),
    "resnet50": partial(vision, "resnet50", 96),
    "mobilenet_v3_small": partial(vision, "mobilenet_v3_small", 128),
    "efficientnet_b0": partial(vision, "efficientnet_b0", 128),
    "vit_tiny": partial(_timm, "vit_tiny_patch16_224"),
    "swin_small_form": partial(_timm, "swin_tiny_patch4_window7_224", **SWIN),
    "convnext_atto": partial(_timm, "convnext_atto"),
    "mixer_s32": partial(_timm, "mixer_s32_224"),
    "gpt2_4": partial(language, "GPT2LMHeadModel", "GPT2Config", GPT2, 128),
    "llama_4": partial(language, "LlamaForCausalLM", "LlamaConfig", LLAMA, 128),
    "distilbert_3": partial(language, "DistilBertForMaskedLM", "DistilBertConfig", DISTILBERT, 128),
    "t5_3": partial(
        language, "T5ForConditionalGeneration", "T5Config", T5, 64, decoder_inputs=True
    ),
    "whisper_2": _whisper,
    **OWN,
}
