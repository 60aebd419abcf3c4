import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, i, o, rank=4, alpha=8):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(o, i).normal_(std=0.02), requires_grad=False)
        self.a = nn.Linear(i, rank, bias=False)
        self.b = nn.Linear(rank, o, bias=False)
        nn.init.normal_(self.b.weight, std=0.02)
        self.scale = alpha / rank
        self.dropout = nn.Dropout(0.0)
        self.disabled = False

    def forward(self, x):
        out = F.linear(x, self.weight)
        if self.disabled:
            return out
        return out + self.scale * self.b(self.a(self.dropout(x)))


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(d))
        self.eps = eps

    def forward(self, x):
        xf = x.float()
        return (xf * torch.rsqrt(xf.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(
            x
        ) * self.scale


class Rope(nn.Module):
    def __init__(self, d, L=64):
        super().__init__()
        th = 1.0 / (10000 ** (torch.arange(0, d, 2).float() / d))
        i = torch.einsum("i,j->ij", torch.arange(L).float(), th)
        self.register_buffer("cache", torch.stack([i.cos(), i.sin()], -1), persistent=False)

    def forward(self, x, input_pos=None):
        T = x.size(1)
        rc = self.cache[:T] if input_pos is None else self.cache[input_pos]
        xs = x.float().reshape(*x.shape[:-1], -1, 2)
        rc = rc.view(-1, xs.size(1), 1, xs.size(3), 2)
        return (
            torch.stack(
                [
                    xs[..., 0] * rc[..., 0] - xs[..., 1] * rc[..., 1],
                    xs[..., 1] * rc[..., 0] + xs[..., 0] * rc[..., 1],
                ],
                -1,
            )
            .flatten(3)
            .type_as(x)
        )


class TLayer(nn.Module):
    def __init__(self, d=32, h=4, kv=2):
        super().__init__()
        self.h, self.kv, self.hd = h, kv, d // h
        self.q = LoRALinear(d, d)
        self.k = nn.Linear(d, kv * self.hd, bias=False)
        self.v = LoRALinear(d, kv * self.hd)
        self.o = nn.Linear(d, d, bias=False)
        self.rope = Rope(self.hd)
        self.n1 = RMSNorm(d)
        self.n2 = RMSNorm(d)
        self.w1 = nn.Linear(d, 2 * d, bias=False)
        self.w3 = nn.Linear(d, 2 * d, bias=False)
        self.w2 = nn.Linear(2 * d, d, bias=False)

    def forward(self, x, *, mask=None, input_pos=None):
        h = self.n1(x)
        b, s, _ = h.shape
        q = self.rope(self.q(h).view(b, s, self.h, self.hd), input_pos=input_pos).transpose(1, 2)
        k = self.rope(self.k(h).view(b, s, self.kv, self.hd), input_pos=input_pos).transpose(1, 2)
        v = self.v(h).view(b, s, self.kv, self.hd).transpose(1, 2)
        g = self.h // self.kv
        k = k.unsqueeze(2).expand(b, self.kv, g, s, self.hd).flatten(1, 2)
        v = v.unsqueeze(2).expand(b, self.kv, g, s, self.hd).flatten(1, 2)
        a = (
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
            .transpose(1, 2)
            .reshape(b, s, -1)
        )
        x = x + self.o(a)
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(64, 32)
        self.layers = nn.ModuleList([TLayer() for _ in range(3)])
        self.norm = RMSNorm(32)
        self.output = nn.Linear(32, 64, bias=False)
        self.num_output_chunks = 2

    def forward(self, t, *, mask=None, input_pos=None):
        h = self.tok(t)
        for l in self.layers:
            h = l(h, mask=mask, input_pos=input_pos)
        return [self.output(c) for c in self.norm(h).chunk(self.num_output_chunks, dim=1)]


class CEWithChunkedOutputLoss(nn.Module):
    def __init__(self, n=2, ignore=-100):
        super().__init__()
        self.n = n
        self.ignore = ignore

    def compute_cross_entropy(self, l, y, normalize=True):
        return F.cross_entropy(l.float(), y, ignore_index=self.ignore, reduction="sum")

    def forward(self, logits, labels):
        tot = (labels != self.ignore).sum()
        labels = [t.reshape(-1) for t in labels.chunk(self.n, dim=1)]
        logits = [l.reshape(-1, l.size(-1)) for l in logits]
        s = 0.0
        for l, y in zip(logits, labels):
            s += self.compute_cross_entropy(l, y)
        return s / tot


N = 3


def build():
    m = Decoder()
    for n, p in m.named_parameters():
        p.requires_grad_(".a." in n or ".b." in n)
    backend = "inductor"
    for l in reversed(list(m.modules())):
        if isinstance(l, TLayer):
            l.compile(backend=backend)
    loss_fn = CEWithChunkedOutputLoss()
    loss_fn.compute_cross_entropy = torch.compile(loss_fn.compute_cross_entropy, backend=backend)
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=3e-3)
    i = [0]

    def step():
        L = [16, 24, 16, 32, 20][i[0] % 5]
        i[0] += 1
        t = torch.randint(64, (2, L))
        y = torch.cat([t[:, 1:], torch.full((2, 1), -100)], 1)
        loss = loss_fn(m(t), y)
        loss.backward()
        opt.step()
        g = [p.grad.clone() for p in m.parameters() if p.grad is not None]
        opt.zero_grad(set_to_none=True)
        return loss, g

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
