"""Real modules trained beside eager: convolution with batch norm, attention, normalisations."""

import flambeau_aot as aot
import pytest
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """One transformer block with a causal mask."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), 0.1, self.training)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=2), nn.BatchNorm2d(8, momentum=None), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 10),
    )  # fmt: skip


def test_convolution_with_batch_norm(same_module_as_eager) -> None:
    module = cnn()
    module[5].momentum = 0.3
    entry = same_module_as_eager(module, torch.randn(4, 3, 12, 12))
    assert len(entry.joint.plan.updates) == 6


def test_channels_last(same_module_as_eager) -> None:
    module = cnn().to(memory_format=torch.channels_last)
    module[5].momentum = 0.3
    x = torch.randn(4, 3, 12, 12).to(memory_format=torch.channels_last)
    same_module_as_eager(module, x, exact=False)


def test_evaluation_mode(same_module_as_eager) -> None:
    module = cnn()
    module[5].momentum = 0.3
    entry = same_module_as_eager(module.eval(), torch.randn(4, 3, 12, 12))
    assert entry.joint.plan.updates == ()


def test_attention_block(same_module_as_eager) -> None:
    entry = same_module_as_eager(Block(), torch.randn(2, 5, 16))
    assert entry.report.saved_bytes < entry.report.saved_bytes_save_all


@pytest.mark.parametrize(
    "module",
    [
        nn.BatchNorm1d(6),
        nn.BatchNorm1d(6, affine=False),
        nn.BatchNorm1d(6, track_running_stats=False),
        nn.InstanceNorm1d(6, affine=True),
        nn.InstanceNorm1d(6, track_running_stats=True, affine=True),
        nn.GroupNorm(2, 6),
    ],
    ids=str,
)
def test_normalisation(module, same_module_as_eager) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale = module, nn.Parameter(torch.ones(6, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x * self.scale)

    same_module_as_eager(Wrapped(), torch.randn(4, 6, 5), exact=False)


def test_tied_and_unused_parameters(same_module_as_eager) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(11, 6)
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.embed.weight
            self.unused = nn.Linear(2, 2)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.embed(ids).tanh())

    same_module_as_eager(Tied(), torch.randint(0, 11, (3, 4)))


def test_one_graph_a_shape_and_mode() -> None:
    module = aot.aot_module(nn.Sequential(nn.Linear(3, 3), nn.Dropout()), aot.run_as_is)
    for size in (2, 5, 2):
        module(torch.randn(size, 3))
    assert len(module.compiled) == 2
    module.eval()
    with torch.no_grad():
        module(torch.randn(2, 3))
    assert {entry.report.kind for entry in module.compiled.values()} == {"training", "inference"}
