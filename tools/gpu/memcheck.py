"""A few steps of two small models, for tools that look at every access to memory.

In training, with recordings, so that what is replayed is looked at too; positions that are looked
up, an LSTM and attention are among them. Prints what each model's steps gave, and the seconds at
which each step was done, so that a run that did not end says how far it came.

    compute-sanitizer --tool memcheck bash tools/gpu.sh python3 tools/gpu/memcheck.py
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau

STEPS = 4
"""Two that warm up, one that is recorded, and a replay."""
STARTED = time.perf_counter()
MODELS = ("lstm", "encoder")


class Small(nn.Module):
    """A language model of a few thousand weights, recurrent or with attention."""

    def __init__(self, recurrent: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.mixing: nn.Module = (
            nn.LSTM(32, 32, batch_first=True)
            if recurrent
            else nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        )
        self.head = nn.Linear(32, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        mixed = self.mixing(self.embedding(tokens))
        return self.head(mixed[0] if isinstance(mixed, tuple) else mixed)


def trained(recurrent: bool, compiled: bool) -> list[float]:
    """The loss of each step."""
    torch.manual_seed(0)
    module = Small(recurrent).cuda()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    def loss_of(tokens: Tensor) -> Tensor:
        return F.cross_entropy(module(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    step = flambeau.compile(loss_of, mode="reduce-overhead") if compiled else loss_of
    losses = []
    for _ in range(STEPS):
        tokens = torch.randint(0, 50, (4, 9), device="cuda")
        optimizer.zero_grad()
        loss = step(tokens)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
        kind, seconds = "compiled" if compiled else "eager", time.perf_counter() - STARTED
        print(f"  {kind} step {len(losses)} after {seconds:.1f} s", flush=True)
    return losses


def main() -> int:
    """Compare with eager; the exit status is 1 where a loss differs."""
    faulthandler.enable()  # where it was, should it come to an end before it says so
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    wrong = False
    for name in parser.parse_args().models:
        own, eager = (trained(name == "lstm", compiled) for compiled in (True, False))
        far = max(abs(a - b) for a, b in zip(own, eager, strict=True))
        wrong = wrong or not far < 1e-3
        print(f"{name}: losses {own[0]:.4f} to {own[-1]:.4f}, eager's within {far:.1e}", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
