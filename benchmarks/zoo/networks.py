"""Networks that no library of models brings: recurrent, recommending, on graphs, denoising.

In: sizes. Out: modules. Invariant: written as their papers' users write them, with nothing that
helps a compiler.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LanguageLSTM(nn.Module):
    """Embedding, two LSTM layers, a projection to the vocabulary."""

    def __init__(self, vocabulary: int = 4000, width: int = 192, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.head(hidden)


class DLRM(nn.Module):
    """Deep learning recommendation model (Naumov et al. 2019): bags, pairwise products, MLPs."""

    def __init__(self, tables: int = 8, rows: int = 20000, width: int = 64) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 256),
            nn.ReLU(),
            nn.Linear(256, 64),
            nn.ReLU(),
            nn.Linear(64, 2),
        )
        lower = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("lower", lower)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        bags = [table(sparse[:, k]) for k, table in enumerate(self.tables)]
        features = torch.stack([x, *bags], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        interactions = products[:, self.lower[0], self.lower[1]]
        return self.top(torch.cat((x, interactions), 1))


class GraphConvolution(nn.Module):
    """Mean over neighbours of a linear map (Kipf and Welling 2017), by edges."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(inside, outside), nn.Linear(inside, outside, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        messages = self.other(x)[source]
        total = torch.zeros(x.shape[0], messages.shape[1], dtype=x.dtype, device=x.device)
        total = total.index_add(0, target, messages)
        degree = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        degree = degree.scatter_add(0, target, torch.ones_like(target, dtype=x.dtype))
        return self.own(x) + total / degree.clamp(min=1).unsqueeze(1)


class GNN(nn.Module):
    """Three graph convolutions and a classifier of nodes."""

    def __init__(self, features: int = 64, width: int = 128, classes: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                GraphConvolution(features, width),
                GraphConvolution(width, width),
                GraphConvolution(width, width),
            ]
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.relu(norm(layer(x, edges)))
        return self.head(x)


def timestep_embedding(steps: Tensor, width: int) -> Tensor:
    """Sines and cosines of the steps at geometric frequencies."""
    frequencies = torch.exp(
        -math.log(10000.0) * torch.arange(width // 2, device=steps.device) / (width // 2)
    )
    angles = steps[:, None].float() * frequencies[None]
    return torch.cat((angles.cos(), angles.sin()), -1)


class ResidualBlock(nn.Module):
    """Two convolutions with group norms; the time embedding is added between them."""

    def __init__(self, inside: int, outside: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(time, outside)
        self.norm2, self.conv2 = nn.GroupNorm(8, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv1(F.silu(self.norm1(x)))
        hidden = hidden + self.time(F.silu(time)).to(x.dtype)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(hidden)))


class SpatialAttention(nn.Module):
    """Self-attention over the positions of an image."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, channels), heads
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        qkv = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, channels // self.heads, -1)
        q, k, v = qkv.transpose(-1, -2).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2)
        return x + self.out(mixed.reshape(batch, channels, height, width))


class DiffusionUNet(nn.Module):
    """The denoiser of a diffusion model (Ho et al. 2020), three resolutions deep."""

    def __init__(self, channels: int = 32, image: int = 3) -> None:
        """image: channels of what is denoised."""
        super().__init__()
        self.width = time = 4 * channels
        self.embed = nn.Sequential(nn.Linear(time, time), nn.SiLU(), nn.Linear(time, time))
        self.enter = nn.Conv2d(image, channels, 3, padding=1)
        self.down1 = ResidualBlock(channels, channels, time)
        self.half1 = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.down2 = ResidualBlock(channels, 2 * channels, time)
        self.half2 = nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1)
        self.middle1 = ResidualBlock(2 * channels, 2 * channels, time)
        self.attention = SpatialAttention(2 * channels)
        self.middle2 = ResidualBlock(2 * channels, 2 * channels, time)
        self.up2 = ResidualBlock(4 * channels, channels, time)
        self.up1 = ResidualBlock(2 * channels, channels, time)
        self.leave = nn.Sequential(
            nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, image, 3, padding=1)
        )

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        time = self.embed(timestep_embedding(steps, self.width).to(x.dtype))
        first = self.down1(self.enter(x), time)
        second = self.down2(self.half1(first), time)
        low = self.middle1(self.half2(second), time)
        low = self.middle2(self.attention(low), time)
        up = F.interpolate(low, scale_factor=2.0, mode="nearest")
        up = self.up2(torch.cat((up, second), 1), time)
        up = F.interpolate(up, scale_factor=2.0, mode="nearest")
        return self.leave(self.up1(torch.cat((up, first), 1), time))


class DiffusionBlock(nn.Module):
    """A block of a diffusion transformer: norms shifted, scaled and gated by the condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = (
            self.modulation(condition).unsqueeze(1).chunk(6, -1)
        )
        batch, length, width = x.shape
        hidden = self.norm1(x) * (1 + scale1) + shift1
        qkv = self.qkv(hidden).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = x + gate1 * self.out(mixed)
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiffusionTransformer(nn.Module):
    """The denoiser of Peebles and Xie (2023) over patches of a latent image."""

    def __init__(
        self, channels: int = 4, width: int = 1152, depth: int = 28, heads: int = 16, patch: int = 2
    ) -> None:
        super().__init__()
        self.width, self.patch = width, patch
        self.enter = nn.Conv2d(channels, width, patch, stride=patch)
        self.embed = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(DiffusionBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.leave = nn.Linear(width, channels * patch * patch)

    def forward(self, x: Tensor, steps: Tensor) -> Tensor:
        size = x.shape[2:]
        condition = self.embed(timestep_embedding(steps, self.width).to(x.dtype))
        hidden = self.enter(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            hidden = block(hidden, condition)
        pixels = self.leave(self.norm(hidden)).transpose(1, 2)
        return F.fold(pixels, size, self.patch, stride=self.patch)
