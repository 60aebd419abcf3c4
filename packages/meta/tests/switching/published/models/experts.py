import torch
import torch.nn as nn
import torch.nn.functional as F

N = 3


class MoE(nn.Module):
    def __init__(self, d=16, n=4, k=2):
        super().__init__()
        self.gate = nn.Linear(d, n, bias=False)
        self.ex = nn.ModuleList(
            [nn.Sequential(nn.Linear(d, 32), nn.SiLU(), nn.Linear(32, d)) for _ in range(n)]
        )
        self.n, self.k = n, k

    def forward(self, h):
        b, s, d = h.shape
        h = h.view(-1, d)
        r = F.softmax(self.gate(h), dim=1, dtype=torch.float)
        w, sel = torch.topk(r, self.k, dim=-1)
        w = (w / w.sum(-1, keepdim=True)).to(h.dtype)
        out = torch.zeros_like(h)
        mask = F.one_hot(sel, self.n).permute(2, 1, 0)
        for e in range(self.n):
            idx, top = torch.where(mask[e])
            cur = h[None, top].reshape(-1, d)
            cur = self.ex[e](cur) * w[top, idx, None]
            out.index_add_(0, top, cur.to(h.dtype))
        return out.reshape(b, s, d), r


def build():
    m = torch.compile(MoE())
    o = torch.optim.Adam(m.parameters(), lr=1e-3, fused=True)
    sc = torch.amp.GradScaler("cpu")

    def step():
        x = torch.randn(2, 8, 16)
        with torch.autocast("cpu", torch.bfloat16):
            y, r = m(x)
            l = y.float().pow(2).mean()
        o.zero_grad()
        sc.scale(l).backward()
        sc.unscale_(o)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        sc.step(o)
        sc.update()
        return l, r

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
