"""`generate()` of transformers' decoders with a compiled forward: graphs and tokens, by cache.

    python -m integration_tests.generation [--only llama gpt2] [--caches dynamic] [--backend eager]

In: nothing. Out: a line a family and cache: how many graphs several prompts took, whether every
token is eager's. Invariant: models are built from small configurations, weights are drawn; one
compiled forward serves all prompts of its line, the short ones among them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import flambeau
from benchmarks.zoo.torchvision_cpu import torchvision

VOCABULARY = 120
#: (batch, tokens of the prompt): one longer than the window and one token among them
PROMPTS = ((1, 5), (1, 9), (1, 21), (1, 1), (1, 7))
NEW = 6
#: graphs of a line by cache, where no layer slides: a prompt's with its length a constant and open,
#: one token's with a cache of any length, which `generate` decides by; and a prompt of one token
MOST = {"dynamic": 4, "static": 3}
#: the same of layers that slide: what Python decides is whether a window is full
MOST_SLIDING = {"dynamic": 5, "static": 5}

_BY_LAYER = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_GROUPS = {"num_key_value_heads": 2}
_WINDOW = {"sliding_window": 8}
_OLD = {
    "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip

#: a class of causal language models, without its ending, and what its configuration is given
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _BY_LAYER | _GROUPS),
    "mistral": ("Mistral", _BY_LAYER | _GROUPS | _WINDOW | {"head_dim": 8}),
    "qwen2": ("Qwen2", _BY_LAYER | _GROUPS),
    "qwen3": ("Qwen3", _BY_LAYER | _GROUPS | {"head_dim": 8}),
    "gemma": ("Gemma", _BY_LAYER | _GROUPS | {"head_dim": 8}),
    "gemma2": ("Gemma2", _BY_LAYER | _GROUPS | _WINDOW | {"head_dim": 8}),
    "phi": ("Phi", _BY_LAYER | {"partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", _BY_LAYER | _GROUPS | _WINDOW),
    "stablelm": ("StableLm", _BY_LAYER | _GROUPS | {"partial_rotary_factor": 0.5}),
    "olmo": ("Olmo", _BY_LAYER | _GROUPS),
    "olmo2": ("Olmo2", _BY_LAYER | _GROUPS),
    "cohere": ("Cohere", _BY_LAYER | _GROUPS),
    "mixtral": ("Mixtral", _BY_LAYER | _GROUPS | _WINDOW | {"num_local_experts": 4}),
    "gpt_neox": ("GPTNeoX", _BY_LAYER | {"rotary_pct": 0.5}),
    "falcon": ("Falcon", _BY_LAYER | {"ffn_hidden_size": 48}),
    "opt": ("OPT", _BY_LAYER | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "gpt2": ("GPT2LMHead", _OLD | {"use_cache": True}),
    "gptj": ("GPTJ", _OLD | {"rotary_dim": 4}),
    "bloom": ("Bloom", _BY_LAYER | {"n_layer": 2, "n_head": 4}),
    "mpt": ("Mpt", {"vocab_size": VOCABULARY, "d_model": 32, "n_heads": 4, "n_layers": 2,
                    "max_seq_len": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}),
}  # fmt: skip

CACHES = ("dynamic", "static", "quantized")
QUANTIZED = {"backend": "quanto", "nbits": 4, "residual_length": 4, "q_group_size": 16}


@dataclass(frozen=True)
class Row:
    """What one family took with one cache."""

    family: str
    cache: str
    graphs: int
    breaks: int
    differing: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        told = f"tokens differ at {self.differing}" if self.differing else "eager's tokens"
        return (
            f"{self.family:10} {self.cache:10} {self.graphs:3} graphs {self.breaks} breaks  {told}"
        )


def model_of(family: str) -> Any:
    """A small model of a family."""
    torchvision()  # transformers imports it
    import transformers  # slow to import, and only this needs it

    transformers.logging.set_verbosity_error()
    name, settings = FAMILIES[family]
    config = getattr(transformers, name.removesuffix("LMHead") + "Config")(**settings)
    ending = "Model" if name.endswith("LMHead") else "ForCausalLM"
    torch.manual_seed(0)
    return getattr(transformers, name + ending)(config).eval()


def prompt(batch: int, length: int) -> torch.Tensor:
    """Tokens, none of them special."""
    drawn = torch.Generator().manual_seed(batch * 100 + length)
    return torch.randint(8, VOCABULARY, (batch, length), generator=drawn)


def generated(model: Any, cache: str, tokens: torch.Tensor) -> torch.Tensor:
    """The prompt and what comes after it."""
    kind: dict[str, Any] = {}
    if cache == "static":
        kind = {"cache_implementation": "static", "disable_compile": True}
    elif cache == "quantized":
        kind = {"cache_implementation": "quantized", "cache_config": QUANTIZED}
    new = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False}
    result: torch.Tensor = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), **new, **kind
    )
    return result


def measured(
    family: str, cache: str, prompts: Sequence[tuple[int, int]] = PROMPTS, **choices: Any
) -> Row:
    """Eager's tokens, then those of a compiled forward."""
    model = model_of(family)
    wanted = [generated(model, cache, prompt(*size)) for size in prompts]
    compiled = flambeau.compile(model.forward, **choices)
    model.forward = compiled
    differing = [
        size
        for size, tokens in zip(prompts, wanted)
        if not torch.equal(generated(model, cache, prompt(*size)), tokens)
    ]
    report = flambeau.report(compiled)
    return Row(family, cache, report.graphs, len(report.breaks), tuple(differing))


def rows(families: Sequence[str], caches: Sequence[str], **choices: Any) -> Iterator[Row]:
    for family in families:
        for cache in caches:
            yield measured(family, cache, **choices)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--caches", nargs="+", choices=CACHES, default=list(CACHES))
    parser.add_argument("--backend", default="eager")
    arguments = parser.parse_args()
    for row in rows(arguments.only, arguments.caches, backend=arguments.backend):
        print(row, flush=True)


if __name__ == "__main__":
    main()
