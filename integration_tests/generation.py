"""`generate()` of transformers' decoders with a compiled forward: graphs and tokens, by cache.

    python -m integration_tests.generation [--only llama gpt2] [--caches dynamic] [--style forward]
        [--backend eager] [--table FILE]

In: nothing. Out: a line a family and cache: how many graphs several prompts took, whether every
token is eager's. Invariant: models are built from small configurations, weights are drawn; one
compiled forward serves all prompts of its line, the short ones among them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

import flambeau
from benchmarks.zoo.torchvision_cpu import torchvision

VOCABULARY = 120
#: (batch, tokens of the prompt): some shorter and some longer than the window; one token comes last
PROMPTS = ((1, 5), (1, 9), (1, 21), (1, 7), (1, 1))
#: tokens that follow each: more than a window holds, and than a quantised cache keeps as they are
NEW = 60
#: graphs of a line by cache, where no layer slides: a prompt's with its length a constant and open,
#: one token's with a cache of any length, which `generate` decides by; and a prompt of one token
MOST = {"dynamic": 4, "static": 3}
#: the same of layers that slide: in a static cache, Python decides whether a window is full, and
#: whether a prompt fills it
MOST_SLIDING = {"dynamic": 4, "static": 5}

_BY_LAYER = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
_GROUPS = {"num_key_value_heads": 2}
_WINDOW = {"sliding_window": 8}
_TYPES = ["sliding_attention", "full_attention"]
_OLD = {
    "vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128,
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
    "gemma3": ("Gemma3", _BY_LAYER | _GROUPS | _WINDOW | {"head_dim": 8, "layer_types": _TYPES}),
    "phi": ("Phi", _BY_LAYER | {"partial_rotary_factor": 0.5}),
    "phi3": ("Phi3", _BY_LAYER | _GROUPS | _WINDOW),
    "stablelm": ("StableLm", _BY_LAYER | _GROUPS | {"partial_rotary_factor": 0.5}),
    "olmo": ("Olmo", _BY_LAYER | _GROUPS),
    "olmo2": ("Olmo2", _BY_LAYER | _GROUPS),
    "starcoder2": ("Starcoder2", _BY_LAYER | _GROUPS | _WINDOW),
    "cohere": ("Cohere", _BY_LAYER | _GROUPS),
    "mixtral": ("Mixtral", _BY_LAYER | _GROUPS | _WINDOW | {"num_local_experts": 4}),
    "gpt_neox": ("GPTNeoX", _BY_LAYER | {"rotary_pct": 0.5}),
    "falcon": ("Falcon", _BY_LAYER | {"ffn_hidden_size": 48}),
    "opt": ("OPT", _BY_LAYER | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "gpt2": ("GPT2LMHead", _OLD | {"use_cache": True}),
    "gptj": ("GPTJ", _OLD | {"rotary_dim": 4}),
    "bloom": ("Bloom", _BY_LAYER | {"n_layer": 2, "n_head": 4}),
    "mpt": ("Mpt", {"vocab_size": VOCABULARY, "d_model": 32, "n_heads": 4, "n_layers": 2,
                    "max_seq_len": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}),
}  # fmt: skip

#: what `generate` is told of a cache. Layers that slide do so in the first two of them
CACHES: dict[str, dict[str, Any]] = {
    "dynamic": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
    "whole": {"cache_implementation": "dynamic_full"},
    "quanto": {"cache_implementation": "quantized", "cache_config": {"backend": "quanto"}},
    "hqq": {"cache_implementation": "quantized", "cache_config": {"backend": "hqq"}},
}
#: the package that a cache needs
NEEDED = {"quanto": "optimum.quanto", "hqq": "hqq"}
_QUANTIZED = {"nbits": 4, "residual_length": 4, "q_group_size": 16}
_HQQ = {"nbits": 8, "axis_key": 1, "axis_value": 1}

#: how a model is compiled: its forward, the model, or by `generate` itself for a static cache
STYLES = ("forward", "model", "generate")


@dataclass(frozen=True)
class Row:
    """What one family took with one cache."""

    family: str
    cache: str
    style: str
    graphs: tuple[int, ...]
    """After each prompt."""
    breaks: int
    differing: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        told = f"tokens differ at {self.differing}" if self.differing else "eager's tokens"
        line = f"{self.family:10} {self.cache:8} {self.style:8} {self.graphs} graphs"
        return f"{line} {self.breaks} breaks  {told}"

    @property
    def cell(self) -> str:
        """The number of graphs in a table, those for one token apart, and what is not as wished."""
        *_, many, last = self.graphs
        broken = f", {self.breaks} breaks" if self.breaks else ""
        one = f" + {last - many}" if last > many else ""
        return f"{many}{one}{broken}{', tokens differ' if self.differing else ''}"


def model_of(family: str) -> Any:
    """A small model of a family."""
    torchvision()  # transformers imports it
    import transformers  # slow to import, and only this needs it

    transformers.logging.set_verbosity_error()
    name, settings = FAMILIES[family]
    ending = "Model" if name.endswith("LMHead") else "ForCausalLM"
    kind = getattr(transformers, name + ending)
    torch.manual_seed(0)
    return kind(kind.config_class(**settings)).eval()


def prompt(batch: int, length: int) -> torch.Tensor:
    """Tokens, none of them special."""
    drawn = torch.Generator().manual_seed(batch * 100 + length)
    return torch.randint(8, VOCABULARY, (batch, length), generator=drawn)


def generated(
    model: Any, cache: str, tokens: torch.Tensor, new: int = NEW, **said: Any
) -> torch.Tensor:
    """The prompt and what comes after it."""
    told = CACHES[cache] | said
    if "cache_config" in told:
        hqq = _HQQ if cache == "hqq" else {}
        told["cache_config"] = told["cache_config"] | _QUANTIZED | hqq
    many = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    result: torch.Tensor = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), **many, **told
    )
    return result


def measured(
    family: str,
    cache: str,
    prompts: Sequence[tuple[int, int]] = PROMPTS,
    style: str = "forward",
    new: int = NEW,
    **choices: Any,
) -> Row:
    """Eager's tokens, then those of a compiled forward."""
    model = model_of(family)
    wanted = [generated(model, cache, prompt(*size), new) for size in prompts]
    said: dict[str, Any] = {}
    if style == "forward":
        model.forward = flambeau.compile(model.forward, **choices)
    elif style == "model":
        flambeau.install()
        model.compile(**choices)
    else:
        said = _compiles_itself(choices)
    compiled = {"forward": "forward", "model": "_compiled_call_impl", "generate": "_compiled_call"}
    differing, graphs = [], []
    for size, tokens in zip(prompts, wanted):
        if not torch.equal(generated(model, cache, prompt(*size), new, **said), tokens):
            differing.append(size)
        report = flambeau.report(getattr(model, compiled[style]))
        graphs.append(report.graphs)
    return Row(family, cache, style, tuple(graphs), len(report.breaks), tuple(differing))


def _compiles_itself(choices: dict[str, Any]) -> dict[str, Any]:
    """What lets `generate` compile what it runs for each token, on any device."""
    from transformers import CompileConfig  # slow to import, and only this needs it

    flambeau.install()
    config = CompileConfig(**choices)
    config._compile_all_devices = True
    return {"disable_compile": False, "compile_config": config}


def has(family: str, cache: str, style: str = "forward") -> bool:
    """Whether a family has such a cache here, and whether `generate` compiles itself for it."""
    needed = NEEDED.get(cache)
    if needed and (find_spec(needed.split(".")[0]) is None or find_spec(needed) is None):
        return False
    if cache == "whole" and "sliding_window" not in FAMILIES[family][1]:
        return False
    return style != "generate" or cache == "static"


def rows(
    families: Sequence[str], caches: Sequence[str], style: str = "forward", **choices: Any
) -> Iterator[Row]:
    for family in families:
        for cache in caches:
            if has(family, cache, style):
                yield measured(family, cache, style=style, **choices)


def table(lines: Sequence[Row]) -> str:
    """Graphs by family and cache: what differs, or breaks, stands beside its number."""
    caches = list(dict.fromkeys(row.cache for row in lines))
    found = {(row.family, row.cache): row for row in lines}
    text = [f"| family | {' | '.join(caches)} |", "| --- |" + " ---: |" * len(caches)]
    for family in dict.fromkeys(row.family for row in lines):
        cells = [found[family, each].cell if (family, each) in found else "" for each in caches]
        text.append(f"| {family} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--caches", nargs="+", choices=CACHES, default=list(CACHES))
    parser.add_argument("--style", choices=STYLES, default="forward")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--table", type=Path)
    said = parser.parse_args()
    found = []
    for row in rows(said.only, said.caches, style=said.style, backend=said.backend):
        print(row, flush=True)
        found.append(row)
    if said.table:
        said.table.write_text(table(found))


if __name__ == "__main__":
    main()
