"""Small models of tokens, signals and sets: attention of many kinds, recurrence, experts, points.

In: batches of any length. Out: models, registered where they are defined. Invariant: each is a few
layers of a few channels.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from integration_tests.sweep.small_models import (
    WIDTH,
    WORDS,
    Layers,
    feed_forward,
    join_heads,
    of,
    sets,
    signals,
    split_heads,
    tokens,
    words,
)


@of(tokens)
class Bag(Layers):
    def __init__(self) -> None:
        super().__init__(words=nn.EmbeddingBag(WORDS, WIDTH, mode="mean"), out=nn.Linear(WIDTH, 3))

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.words(ids))


@of(tokens)
class Encoder(Layers):
    def __init__(self) -> None:
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        super().__init__(words=words(), body=nn.TransformerEncoder(layer, 2))

    def forward(self, ids: Tensor) -> Tensor:
        return self.body(self.words(ids), src_key_padding_mask=ids == 0)


@of(tokens)
class Causal(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), qkv=nn.Linear(WIDTH, 3 * WIDTH), ff=feed_forward())
        self.places = nn.Embedding(64, WIDTH)
        self.register_buffer("mask", torch.ones(64, 64).tril().view(1, 1, 64, 64))

    def forward(self, ids: Tensor) -> Tensor:
        _, t = ids.size()
        x = self.words(ids) + self.places(torch.arange(0, t, device=ids.device))
        q, k, v = map(split_heads, self.qkv(x).split(WIDTH, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        x = x + join_heads(scores.softmax(-1) @ v)
        return (x + self.ff(x)) @ self.words.weight.t()


@of(tokens)
class Rotary(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), q=nn.Linear(WIDTH, WIDTH), kv=nn.Linear(WIDTH, WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        q, (k, v) = split_heads(self.q(x)), (split_heads(y, 1) for y in self.kv(x).chunk(2, -1))
        angle = torch.outer(torch.arange(ids.shape[1]), 1.0 / 100 ** (torch.arange(4) / 4))
        q, k = (_turned(y, angle) for y in (q, k))
        k, v = (y.expand(-1, 2, -1, -1) for y in (k, v))
        return join_heads(F.scaled_dot_product_attention(q, k, v, is_causal=True))


def _turned(x: Tensor, angle: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    return torch.cat(
        [one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()], -1
    )


@of(tokens)
class RelativeBias(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), qkv=nn.Linear(WIDTH, 3 * WIDTH), bias=nn.Embedding(8, 2))

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1])
        apart = (places[None] - places[:, None]).abs()
        far = 4 + (torch.log(apart.clamp(min=1).float() / 4) * 2).long()
        bias = self.bias(torch.where(apart < 4, apart, far.clamp(max=7))).permute(2, 0, 1)
        q, k, v = map(split_heads, self.qkv(self.words(ids)).chunk(3, -1))
        return join_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None]))


@of(tokens)
class LinearBiases(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), attention=nn.MultiheadAttention(WIDTH, 2, batch_first=True))

    def forward(self, ids: Tensor) -> Any:
        t = ids.shape[1]
        slope = torch.tensor([0.5, 0.25]).view(2, 1, 1)
        mask = -slope * (torch.arange(t)[:, None] - torch.arange(t)[None]).abs()
        mask = mask.repeat(ids.shape[0], 1, 1)
        x = self.words(ids)
        return self.attention(x, x, x, attn_mask=mask)


@of(tokens)
class LinearAttention(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), qkv=nn.Linear(WIDTH, 3 * WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        q, k, v = map(split_heads, self.qkv(self.words(ids)).chunk(3, -1))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
        total = torch.einsum("bhtd,bhtde->bhte", q, state)
        return join_heads(total / (q * k.cumsum(2)).sum(-1, keepdim=True))


@of(tokens)
class LocalBlocks(Layers):
    def __init__(self) -> None:
        super().__init__(words=words())

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        length = x.shape[1]
        x = F.pad(x, (0, 0, 0, (4 - length % 4) % 4))
        x = x.view(x.shape[0], x.shape[1] // 4, 4, WIDTH)
        before = F.pad(x, (0, 0, 0, 0, 1, 0))[:, :-1]
        keys = torch.cat([before, x], 2)
        x = (x @ keys.transpose(-1, -2)).softmax(-1) @ keys
        return x.flatten(1, 2)[:, :length]


@of(tokens)
class Mixer(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), ff=feed_forward(), norm=nn.LayerNorm(WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        x = torch.fft.fft2(x.float(), dim=(-2, -1)).real + x
        return self.norm(x + self.ff(x)).amax(1)


@of(tokens)
class Tagger(Layers):
    def __init__(self) -> None:
        super().__init__(
            words=words(), rnn=nn.LSTM(WIDTH, 8, batch_first=True, bidirectional=True),
            out=nn.Linear(16, 5),
        )  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:
        found, _ = self.rnn(self.words(ids))
        return self.out(found).log_softmax(-1)


@of(tokens)
class LastState(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), rnn=nn.GRU(WIDTH, 8, num_layers=2), out=nn.Linear(8, 2))

    def forward(self, ids: Tensor) -> Tensor:
        _, last = self.rnn(self.words(ids).transpose(0, 1))
        return self.out(last[-1])


@of(tokens)
class Translator(Layers):
    def __init__(self) -> None:
        super().__init__(
            words=words(), out=nn.Linear(WIDTH, WORDS),
            body=nn.Transformer(WIDTH, 2, 1, 1, 32, dropout=0.0, batch_first=True),
        )  # fmt: skip

    def forward(self, ids: Tensor) -> Tensor:
        target = self.words(ids[:, :-1])
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.out(self.body(self.words(ids), target, tgt_mask=mask))


@of(tokens)
class CharacterCnn(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), three=nn.Conv1d(WIDTH, 6, 3), five=nn.Conv1d(WIDTH, 6, 5))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids).transpose(1, 2)
        return torch.cat([F.relu(layer(x)).max(2).values for layer in (self.three, self.five)], 1)


@of(tokens)
class SoftExperts(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), gate=nn.Linear(WIDTH, 4))
        self.weights = nn.Parameter(torch.randn(4, WIDTH, WIDTH) * 0.1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids).flatten(0, 1)
        best, which = self.gate(x).softmax(-1).topk(2)
        chosen = torch.zeros(x.shape[0], 4).scatter(1, which, best)
        return torch.einsum("td,edf,te->tf", x, self.weights, chosen).view(*ids.shape, WIDTH)


@of(tokens)
class StateSpace(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), step=nn.Linear(WIDTH, WIDTH))
        self.decay = nn.Parameter(torch.rand(WIDTH))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        rate = -F.softplus(self.step(x)) * self.decay.abs()
        total = rate.cumsum(1)
        apart = (total[:, :, None] - total[:, None]).masked_fill(
            torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()[None, :, :, None], -1e9
        )
        return torch.einsum("btsd,bsd->btd", apart.exp(), x)


@of(tokens)
class Factors(Layers):
    def __init__(self) -> None:
        super().__init__(words=words(), once=nn.Embedding(WORDS, 1), deep=feed_forward())

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        second = 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1)).sum(1)
        return (self.once(ids).sum((1, 2)) + second + self.deep(x).sum((1, 2))).sigmoid()


@of(signals)
class Wave(Layers):
    def __init__(self) -> None:
        super().__init__(first=nn.Conv1d(1, 8, 1), gate=nn.Conv1d(8, 16, 2, dilation=2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x[:, None])
        one, other = self.gate(F.pad(x, (2, 0))).chunk(2, 1)
        return x + torch.tanh(one) * torch.sigmoid(other)


@of(signals)
class Spectrogram(Layers):
    def __init__(self) -> None:
        super().__init__(body=nn.Conv1d(5, 4, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.stft(x, 8, 4, window=torch.hann_window(8), return_complex=True)
        return self.body(torch.log1p(found.abs()))


@of(signals)
class Trend(Layers):
    def __init__(self) -> None:
        super().__init__(mean=nn.AvgPool1d(5, 1, 2, count_include_pad=False))

    def forward(self, x: Tensor) -> Tensor:
        rest = x - self.mean(x[:, None])[:, 0]
        spectrum = torch.fft.rfft(rest)
        strongest = spectrum.abs().mean(0).topk(2).indices
        kept = torch.zeros_like(spectrum).index_copy(1, strongest, spectrum[:, strongest])
        return torch.fft.irfft(kept, n=x.shape[1]) + rest.std(1, keepdim=True)


@of(signals)
class Flow(Layers):
    def __init__(self) -> None:
        super().__init__(body=nn.Conv1d(1, 2, 3, padding=1))

    def forward(self, x: Tensor) -> Any:
        half = x.shape[1] // 2
        one, other = x[:, :half], x[:, half : 2 * half]
        scale, shift = self.body(one[:, None]).unbind(1)
        scale = torch.tanh(scale)
        return torch.cat([one, other * scale.exp() + shift], 1), scale.sum(1)


@of(sets)
class DeepSets(Layers):
    def __init__(self) -> None:
        super().__init__(inner=nn.Linear(3, WIDTH), outer=nn.Linear(2 * WIDTH, 2))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.inner(x))
        return self.outer(torch.cat([x.mean(1), x.amax(1)], 1))


@of(sets)
class Points(Layers):
    def __init__(self) -> None:
        super().__init__(inner=nn.Linear(6, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        near = torch.cdist(x, x).topk(4, largest=False).indices
        flat = near + torch.arange(x.shape[0]).view(-1, 1, 1) * x.shape[1]
        around = x.reshape(-1, 3)[flat.view(-1)].view(*near.shape, 3)
        edges = torch.cat([around - x[:, :, None], x[:, :, None].expand_as(around)], -1)
        return self.inner(edges).amax(2).mean(1)


@of(sets)
class DenseGraph(Layers):
    def __init__(self) -> None:
        super().__init__(weight=nn.Linear(3, WIDTH), score=nn.Linear(2 * WIDTH, 1))

    def forward(self, x: Tensor) -> Tensor:
        linked = torch.cdist(x, x) < 1.5
        x = self.weight(x)
        n = x.shape[1]
        pairs = torch.cat(
            [x[:, :, None].expand(-1, -1, n, -1), x[:, None].expand(-1, n, -1, -1)], -1
        )
        score = F.leaky_relu(self.score(pairs)[..., 0], 0.2).masked_fill(~linked, -1e9)
        return score.softmax(-1) @ x


@of(sets)
class Bodies(Layers):
    def __init__(self) -> None:
        super().__init__(mass=nn.Linear(3, 1))

    def forward(self, x: Tensor) -> Tensor:
        speed = torch.zeros_like(x)
        for _ in range(3):
            apart = x[:, None] - x[:, :, None]
            force = apart / (apart.pow(2).sum(-1, keepdim=True) + 0.1) ** 1.5
            speed = speed + 0.01 * (self.mass(x)[:, None].sigmoid() * force).sum(2)
            x = x + 0.01 * speed
        return x


@of(sets)
class Latents(Layers):
    def __init__(self) -> None:
        super().__init__(
            inner=nn.Linear(3, WIDTH), attention=nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        )
        self.latents = nn.Parameter(torch.randn(1, 4, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        start = self.latents.repeat(x.shape[0], 1, 1)
        return self.attention(start, x, x, need_weights=False)[0] + start


@of(sets)
class Assignment(Layers):
    def __init__(self) -> None:
        super().__init__(centres=nn.Linear(3, 4, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.centres(x) / 0.1
        for _ in range(3):
            scores = scores - scores.logsumexp(1, keepdim=True)
            scores = scores - scores.logsumexp(2, keepdim=True)
        rest = x[:, :, None] - self.centres.weight[None, None]
        return F.normalize((scores.exp()[..., None] * rest).sum(1).flatten(1), dim=1)
