"""`generate()` of a Llama-shaped model on a GPU beside a loop of its own: milliseconds a token.

    bash tools/gpu.sh python -m benchmarks.programs.generating --shapes 1b --batches 1
        --json OUT.json

In: nothing. Out: a line for each system and cache: milliseconds of a new token (the time of a long
generation less that of a short one, over the tokens between them), seconds of the first call, how
many tokens are eager's. Invariant: every line is a process of its own, on the same weights.

`own loop` is the least that `generate` could take: the same model and static cache, one compiled
step after the other, the likeliest token fed back, nothing looked at before the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from benchmarks.programs.decoding import SHAPES, VOCABULARY
from benchmarks.run import run_case

#: tokens of the prompt, and of the two generations whose difference counts
PROMPT, SHORT, LONG = 128, 16, 144
ROUNDS = 5


def model_of(shape: str) -> Any:
    """The causal language model, drawn."""
    from transformers import LlamaConfig, LlamaForCausalLM

    layers, width, inner, heads, groups = SHAPES[shape]
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=groups, max_position_embeddings=2048,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with torch.device("cuda"):
        return LlamaForCausalLM(config).bfloat16().eval().requires_grad_(False)


def generating(model: Any, prompt: torch.Tensor, **given: Any) -> Callable[[int], torch.Tensor]:
    """Greedy generation of so many tokens by `generate`."""

    def generated(new: int) -> torch.Tensor:
        found = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, min_new_tokens=new,
            max_new_tokens=new, **given,
        )  # fmt: skip
        return found[:, PROMPT:]

    return generated


def own_loop(model: Any, prompt: torch.Tensor, compiled: Any) -> Callable[[int], torch.Tensor]:
    """The same by a loop over one compiled step and a static cache."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=PROMPT + LONG)

    def step(token: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        out = model(
            input_ids=token, position_ids=at[None], past_key_values=cache, cache_position=at
        )
        return out.logits[:, -1:].argmax(-1)

    step_of = compiled(step)

    def generated(new: int) -> torch.Tensor:
        cache.reset()
        token = step(prompt, torch.arange(PROMPT, device="cuda"))
        found = [token]
        for at in range(PROMPT, PROMPT + new - 1):
            token = step_of(token, torch.tensor([at], device="cuda")).clone()
            found.append(token)
        return torch.cat(found, 1)

    return generated


def _flambeau_forward(model: Any, **options: Any) -> Any:
    import flambeau

    model.forward = flambeau.compile(model.forward, **options)
    return model


def _installed(model: Any) -> Any:
    import flambeau

    flambeau.install()
    return model


def _flambeau(step: Any) -> Any:
    import flambeau

    return flambeau.compile(step, mode="reduce-overhead")


def _incumbent(step: Any) -> Any:
    return torch.compile(step, mode="reduce-overhead")


STATIC = {"cache_implementation": "static"}
SYSTEMS: dict[str, Callable[[Any, torch.Tensor], Callable[[int], torch.Tensor]]] = {
    "eager, dynamic cache": lambda model, prompt: generating(model, prompt),
    "eager, static cache": lambda model, prompt: generating(
        model, prompt, disable_compile=True, **STATIC
    ),
    "incumbent, static cache": lambda model, prompt: generating(model, prompt, **STATIC),
    "flambeau installed, static cache": lambda model, prompt: generating(
        _installed(model), prompt, **STATIC
    ),
    "flambeau forward, static cache": lambda model, prompt: generating(
        _flambeau_forward(model), prompt, disable_compile=True, **STATIC
    ),
    "flambeau forward, dynamic cache": lambda model, prompt: generating(
        _flambeau_forward(model), prompt
    ),
    "incumbent, own loop": lambda model, prompt: own_loop(model, prompt, _incumbent),
    "flambeau, own loop": lambda model, prompt: own_loop(model, prompt, _flambeau),
}


def measure(shape: str, batch: int, system: str) -> dict[str, Any]:
    """Milliseconds a token, seconds of the first call, the tokens."""
    model = model_of(shape)
    torch.manual_seed(11)
    prompt = torch.randint(3, VOCABULARY, (batch, PROMPT), device="cuda")
    with torch.no_grad():
        generated = SYSTEMS[system](model, prompt)

        def seconds(new: int) -> tuple[float, torch.Tensor]:
            torch.cuda.synchronize()
            started = time.perf_counter()
            found = generated(new)
            torch.cuda.synchronize()
            return time.perf_counter() - started, found

        first, _ = seconds(SHORT)
        again, _ = seconds(LONG)
        seconds(SHORT)
        between = []
        for _ in range(ROUNDS):
            long, tokens = seconds(LONG)
            short, _ = seconds(SHORT)
            between.append((long - short) / (LONG - SHORT) * 1e3)
    row = {
        "first_s": first,
        "second_s": again,
        "token_ms": median(between),
        "prompt_ms": short * 1e3,
    }
    return row | {"tokens": tokens[0].tolist()}


def _same(tokens: list[int], wanted: list[int]) -> int:
    """How many tokens agree before the first that differs."""
    pairs = zip(tokens, wanted, strict=True)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(wanted))


def line(case: str, row: dict[str, Any], wanted: list[int]) -> str:
    """A row of the table."""
    if "failed" in row:
        return f"| {case} | {row['failed']} |"
    figures = "{token_ms:.2f} ms a token | {prompt_ms:.0f} ms to 16 tokens | first {first_s:.1f} s"
    same = _same(row["tokens"], wanted)
    return f"| {case} | {figures.format(**row)} | {same} of {len(wanted)} tokens |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["1b"], choices=SHAPES)
    parser.add_argument("--batches", nargs="*", type=int, default=[1])
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--timeout", type=float, default=150.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", nargs=3, metavar=("SHAPE", "BATCH", "SYSTEM"))
    a = parser.parse_args()
    if a.case:
        print(json.dumps(measure(a.case[0], int(a.case[1]), a.case[2])))
        return 0
    results: dict[str, Any] = {}
    for shape, batch in product(a.shapes, a.batches):
        wanted: list[int] = []
        for system in a.systems:
            name = f"{shape} batch {batch}, {system}"
            with tempfile.TemporaryDirectory() as caches:
                arguments = ["--case", shape, str(batch), system]
                row = run_case(arguments, caches, a.timeout, "programs/generating.py")
            wanted = wanted or row.get("tokens", [])
            results[name] = row
            print(line(name, row, wanted), flush=True)
            if a.json is not None:
                a.json.write_text(json.dumps(results))
    return 1 if any("failed" in each for each in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
