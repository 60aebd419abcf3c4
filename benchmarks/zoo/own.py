"""The workloads of `networks.py`.

In: a device, whether to train, whether to be quick. Out: a `Workload` whose first output is a loss
in training. Invariant: sizes are such that a step takes milliseconds to tenths of seconds on two
cores.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.zoo.networks import DLRM, GNN, DiffusionUNet, LanguageLSTM
from benchmarks.zoo.workload import Workload

Loss = Callable[[Tensor, Tensor], Tensor]


def supervised(
    module: nn.Module, inputs: tuple[Tensor, ...], target: Tensor, loss: Loss, training: bool
) -> Workload:
    """The module itself for inference, its loss for training."""
    module = module.to(inputs[0].device).train(training)
    if not training:
        return Workload(module, inputs, module)

    def step(*given: Tensor) -> Tensor:
        return loss(module(*given[:-1]), given[-1])

    return Workload(step, (*inputs, target), module, training=True)


def tokens_loss(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def lstm(device: str, training: bool, quick: bool) -> Workload:
    """A language model of two LSTM layers."""
    module = LanguageLSTM(vocabulary=500 if quick else 4000)
    vocabulary = module.head.out_features
    tokens = torch.randint(0, vocabulary, (2 if quick else 16, 8 if quick else 64), device=device)
    return supervised(module, (tokens,), tokens.roll(-1, 1), tokens_loss, training)


def dlrm(
    device: str, training: bool, quick: bool, *, tables: int = 8, rows: int = 20000,
    batch: int = 2048,
) -> Workload:  # fmt: skip
    """Clicks predicted from 13 numbers and a bag of 4 categories a table."""
    rows, batch = (500, 32) if quick else (rows, batch)
    module = DLRM(tables, rows)
    dense = torch.randn(batch, 13, device=device)
    sparse = torch.randint(0, rows, (batch, tables, 4), device=device)
    target = torch.randint(0, 2, (batch,), device=device)
    return supervised(module, (dense, sparse), target, F.cross_entropy, training)


def gnn(device: str, training: bool, quick: bool, *, nodes: int = 8000) -> Workload:
    """Nodes of a random graph, of 8 edges each, classified by three graph convolutions."""
    nodes = 200 if quick else nodes
    x = torch.randn(nodes, 64, device=device)
    edges = torch.randint(0, nodes, (2, 8 * nodes), device=device)
    target = torch.randint(0, 16, (nodes,), device=device)
    return supervised(GNN(), (x, edges), target, F.cross_entropy, training)


def unet(device: str, training: bool, quick: bool) -> Workload:
    """The noise in an image predicted."""
    batch = 2 if quick else (64 if device == "cuda" else 4)
    images = torch.randn(batch, 3, 32, 32, device=device)
    steps = torch.randint(0, 1000, (batch,), device=device)
    noise = torch.randn_like(images)
    return supervised(DiffusionUNet(), (images, steps), noise, F.mse_loss, training)


def encoder(device: str, training: bool, quick: bool) -> Workload:
    """`nn.TransformerEncoder` as its documentation builds it, dropout off."""
    layer = nn.TransformerEncoderLayer(
        256, 4, 1024, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    module = nn.TransformerEncoder(layer, 1 if quick else 4, enable_nested_tensor=False)
    x = torch.randn(2 if quick else 8, 16 if quick else 128, 256, device=device)
    return supervised(module, (x,), torch.randn_like(x), F.mse_loss, training)


OWN: dict[str, Callable[[str, bool, bool], Workload]] = {
    "lstm": lstm,
    "dlrm": dlrm,
    "gnn": gnn,
    "diffusion_unet": unet,
    "transformer_encoder": encoder,
}
