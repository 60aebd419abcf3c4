"""Small models of pictures: classifiers, pyramids, patches, windows, generators, heads.

In: batches of pictures of any size. Out: models, registered where they are defined. Invariant: each
is a few layers of a few channels.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from integration_tests.sweep.small_models import (
    WIDTH,
    Layers,
    conv,
    feed_forward,
    images,
    join_heads,
    of,
    split_heads,
)


@of(images)
class Convolutions(nn.Sequential):
    def __init__(self) -> None:
        pool, flat = nn.AdaptiveAvgPool2d(2), nn.Flatten()
        super().__init__(conv(3, 8), nn.ReLU(), nn.MaxPool2d(2), conv(8, 8), pool, flat)


@of(images)
class Residual(Layers):
    def __init__(self) -> None:
        super().__init__(
            one=conv(3, 8, stride=2), two=conv(8, 8), norm=nn.BatchNorm2d(8), out=nn.Linear(8, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.one(x)))
        return self.out((x + self.two(x)).mean((2, 3)))


@of(images)
class Unet(Layers):
    def __init__(self) -> None:
        super().__init__(
            down=conv(3, 8), low=conv(8, 8, stride=2), up=nn.ConvTranspose2d(8, 8, 2, stride=2),
            out=conv(16, 2),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        left = F.relu(self.down(x))
        right = self.up(F.relu(self.low(left)))
        dy, dx = left.shape[2] - right.shape[2], left.shape[3] - right.shape[3]
        right = F.pad(right, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(torch.cat([left, right], 1))


@of(images)
class Dense(Layers):
    def __init__(self) -> None:
        super().__init__(one=conv(3, 4), two=conv(7, 4), three=conv(11, 4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.one, self.two, self.three):
            x = torch.cat([x, F.relu(layer(x))], 1)
        return F.avg_pool2d(x, 2)


@of(images)
class SqueezeExcite(Layers):
    def __init__(self) -> None:
        super().__init__(
            wide=conv(3, 8, 1), deep=conv(8, 8, groups=8), less=conv(8, 2, 1), more=conv(2, 8, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.deep(self.wide(x)))
        return x * F.hardsigmoid(self.more(F.relu(self.less(F.adaptive_avg_pool2d(x, 1)))))


@of(images)
class Pyramid(Layers):
    def __init__(self) -> None:
        super().__init__(one=conv(3, 8, stride=2), two=conv(8, 8, stride=2), side=conv(8, 8, 1))

    def forward(self, x: Tensor) -> Any:
        high = F.relu(self.one(x))
        low = F.relu(self.two(high))
        up = F.interpolate(low, size=high.shape[-2:], mode="nearest")
        return self.side(high) + up, low


@of(images)
class AtrousPooling(Layers):
    def __init__(self) -> None:
        super().__init__(near=conv(3, 4), far=conv(3, 4, padding=2, dilation=2), all=conv(3, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        whole = F.interpolate(self.all(x.mean((2, 3), True)), x.shape[2:], mode="bilinear")
        return torch.cat([self.near(x), self.far(x), whole], 1)


@of(images)
class Patches(Layers):
    def __init__(self) -> None:
        super().__init__(
            patch=nn.Conv2d(3, WIDTH, 8, 8), block=nn.TransformerEncoderLayer(
                WIDTH, 2, 32, dropout=0.0, batch_first=True
            )
        )  # fmt: skip
        self.place = nn.Parameter(torch.randn(1, WIDTH, 4, 4))
        self.first = nn.Parameter(torch.randn(1, 1, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x)
        x = x + F.interpolate(self.place, size=x.shape[-2:], mode="bicubic", align_corners=False)
        x = x.flatten(2).transpose(1, 2)
        return self.block(torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1))[:, 0]


@of(images)
class Windows(Layers):
    def __init__(self) -> None:
        super().__init__(patch=conv(3, WIDTH), qkv=nn.Linear(WIDTH, 3 * WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        x = F.pad(x, (0, 0, 0, -w % 7, 0, -h % 7))
        rows, columns = x.shape[1] // 7, x.shape[2] // 7
        x = torch.roll(x, (-3, -3), (1, 2))
        x = x.view(b, rows, 7, columns, 7, c).transpose(2, 3).reshape(-1, 49, c)
        q, k, v = map(split_heads, self.qkv(x).chunk(3, -1))
        x = join_heads(F.scaled_dot_product_attention(q, k, v))
        x = x.view(b, rows, columns, 7, 7, c).transpose(2, 3).reshape(b, rows * 7, columns * 7, c)
        return torch.roll(x, (3, 3), (1, 2))[:, :h, :w].contiguous()


@of(images)
class ConvNext(Layers):
    def __init__(self) -> None:
        super().__init__(
            stem=nn.Conv2d(3, WIDTH, 4, 4), deep=conv(WIDTH, WIDTH, 7, groups=WIDTH),
            norm=nn.LayerNorm(WIDTH), ff=feed_forward(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return x + self.ff(self.norm(self.deep(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)


@of(images)
class SpatialTransformer(Layers):
    def __init__(self) -> None:
        super().__init__(theta=nn.Linear(3, 6))

    def forward(self, x: Tensor) -> Tensor:
        theta = self.theta(x.mean((2, 3))).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)


@of(images)
class SuperResolution(Layers):
    def __init__(self) -> None:
        super().__init__(body=conv(3, 12), shuffle=nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        up = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return up + self.shuffle(self.body(x))


@of(images)
class Diffusion(Layers):
    def __init__(self) -> None:
        super().__init__(
            one=conv(3, 8, stride=4), time=nn.Linear(8, 8), norm=nn.GroupNorm(2, 8), out=conv(8, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        step = torch.arange(x.shape[0], device=x.device)
        rate = torch.exp(-math.log(10000) * torch.arange(4) / 4)
        angle = step[:, None] * rate[None]
        time = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        x = F.silu(self.norm(self.one(x)) + time[:, :, None, None])
        flat = x.flatten(2)
        seen = torch.softmax(flat.transpose(1, 2) @ flat / 8**0.5, -1)
        return self.out(x + (flat @ seen.transpose(1, 2)).view_as(x))


@of(images)
class Anchors(Layers):
    def __init__(self) -> None:
        super().__init__(body=conv(3, 8, stride=4), heads=conv(8, 3 * 5, 1))

    def forward(self, x: Tensor) -> Any:
        found = self.heads(F.relu(self.body(x)))
        n, _, h, w = found.shape
        found = found.view(n, 3, 5, h, w).permute(0, 3, 4, 1, 2).reshape(n, -1, 5)
        y, x = torch.meshgrid(torch.arange(h) * 4, torch.arange(w) * 4, indexing="ij")
        centre = torch.stack([x, y], -1).view(-1, 1, 2).expand(-1, 3, -1).reshape(-1, 2)
        return found[..., :2].sigmoid() * 4 + centre, found[..., 2:4].exp(), found[..., 4]


@of(images)
class Variational(Layers):
    def __init__(self) -> None:
        super().__init__(inside=conv(3, 8, stride=2), mean=conv(8, 4, 1), spread=conv(8, 4, 1),
                         outside=nn.ConvTranspose2d(4, 3, 2, 2))  # fmt: skip

    def forward(self, x: Tensor) -> Any:
        inner = F.relu(self.inside(x))
        mean, spread = self.mean(inner), self.spread(inner)
        kl = -0.5 * (1 + spread - mean**2 - spread.exp()).flatten(1).sum(1)
        return torch.sigmoid(self.outside(mean)), kl.mean()


@of(images)
class Fourier(Layers):
    def __init__(self) -> None:
        super().__init__(local=conv(3, 3, 1))
        self.weight = nn.Parameter(torch.randn(3, 4, 4, 2))

    def forward(self, x: Tensor) -> Tensor:
        low = torch.fft.rfft2(x)[:, :, :4, :4] * torch.view_as_complex(self.weight)
        full = torch.zeros(*x.shape[:3], x.shape[3] // 2 + 1, dtype=torch.complex64)
        full[:, :, :4, :4] = low
        return torch.fft.irfft2(full, s=x.shape[-2:]) + self.local(x)


@of(images)
class Contrastive(Layers):
    def __init__(self) -> None:
        super().__init__(body=conv(3, 8), one=nn.Linear(8, 4), two=nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x).mean((2, 3))
        a, b = F.normalize(self.one(x), dim=1), F.normalize(self.two(x), dim=1)
        logits = a @ b.t() * 10
        return F.cross_entropy(logits, torch.arange(len(x))) + logits.diagonal().mean()


@of(images)
class Capsules(Layers):
    def __init__(self) -> None:
        super().__init__(body=conv(3, 8, stride=4))
        self.weight = nn.Parameter(torch.randn(4, 4, 4))

    def forward(self, x: Tensor) -> Tensor:
        votes = self.body(x).view(x.shape[0], 2, 4, -1).permute(0, 3, 1, 2).flatten(1, 2)
        votes = torch.einsum("bnd,kde->bkne", votes, self.weight)
        logits = votes.new_zeros(votes.shape[:3])
        for _ in range(2):
            s = (logits.softmax(1)[..., None] * votes).sum(2)
            v = s * (s.norm(dim=-1, keepdim=True) / (1 + s.pow(2).sum(-1, keepdim=True)))
            logits = logits + (votes * v[:, :, None]).sum(-1)
        return v.norm(dim=-1)
