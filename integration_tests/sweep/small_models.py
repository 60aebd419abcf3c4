"""Small models of many kinds, as tutorials and papers write them: what they have in common.

In: classes of models, by decorator. Out: cases. Invariant: each takes any batch size, and any
length of its tokens, signals or pictures that eager takes; data decides no size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from integration_tests.sweep.cases import Case, Subject, positional

WIDTH, WORDS = 16, 50

MODELS: dict[str, tuple[type[nn.Module], Callable[[], Tensor]]] = {}


def tokens() -> Tensor:
    return torch.randint(0, WORDS, (3, 16))


def images() -> Tensor:
    return torch.randn(3, 3, 32, 32)


def signals() -> Tensor:
    return torch.randn(3, 16)


def sets() -> Tensor:
    return torch.randn(3, 16, 3)


def of(make: Callable[[], Tensor]) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """A class of a model of such inputs."""

    def keep(kind: type[nn.Module]) -> type[nn.Module]:
        MODELS[kind.__name__] = kind, make
        return kind

    return keep


def cases(every: bool) -> Iterator[Case]:
    """All of them."""
    from integration_tests.sweep import small_pictures, small_sequences  # they register theirs

    assert small_pictures and small_sequences
    for name, (kind, make) in MODELS.items():
        yield Case(name, "small", partial(_build, kind, make))


def _build(kind: type[nn.Module], make: Callable[[], Tensor]) -> Subject:
    torch.manual_seed(0)
    module = kind()
    return Subject(module, (positional(module, make()), positional(module, make())))


class Layers(nn.Module):
    """What several of them are made of."""

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)


def conv(inner: int, outer: int, size: int = 3, **said: Any) -> nn.Conv2d:
    return nn.Conv2d(inner, outer, size, padding=said.pop("padding", size // 2), **said)


def words() -> nn.Embedding:
    return nn.Embedding(WORDS, WIDTH)


def feed_forward() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


def split_heads(x: Tensor, heads: int = 2) -> Tensor:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)
