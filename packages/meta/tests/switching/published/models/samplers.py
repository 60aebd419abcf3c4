import torch
import torch.nn as nn

N = 3


class Den(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(9, 64)
        self.b = nn.Linear(64, 8)

    def forward(self, x, sigma):
        return self.b(torch.nn.functional.silu(self.a(torch.cat([x, sigma.log()[:, None] / 4], 1))))


def get_sigmas_karras(n, smin=0.02, smax=10.0, rho=7.0):
    r = torch.linspace(0, 1, n)
    a = smin ** (1 / rho)
    b = smax ** (1 / rho)
    return torch.cat([(b + r * (a - b)) ** rho, torch.zeros(1)])


def get_ancestral_step(sf, st, eta=1.0):
    if not eta:
        return st, 0.0
    su = min(st, eta * (st**2 * (sf**2 - st**2) / sf**2) ** 0.5)
    return (st**2 - su**2) ** 0.5, su


@torch.no_grad()
def sample_euler_ancestral(model, x, sigmas, callback=None, eta=1.0):
    s_in = x.new_ones([x.shape[0]])
    for i in range(len(sigmas) - 1):
        den = model(x, sigmas[i] * s_in)
        sd, su = get_ancestral_step(sigmas[i], sigmas[i + 1], eta)
        d = (x - den) / sigmas[i]
        if callback is not None:
            callback({"x": x, "i": i, "sigma": sigmas[i], "denoised": den})
        x = x + d * (sd - sigmas[i])
        if sigmas[i + 1] > 0:
            x = x + torch.randn_like(x) * su
    return x


@torch.no_grad()
def sample_heun(model, x, sigmas):
    s_in = x.new_ones([x.shape[0]])
    for i in range(len(sigmas) - 1):
        d = (x - model(x, sigmas[i] * s_in)) / sigmas[i]
        dt = sigmas[i + 1] - sigmas[i]
        if sigmas[i + 1] == 0:
            x = x + d * dt
        else:
            x2 = x + d * dt
            d2 = (x2 - model(x2, sigmas[i + 1] * s_in)) / sigmas[i + 1]
            x = x + (d + d2) / 2 * dt
    return x


def build():
    m = torch.compile(Den().eval())
    sa = torch.compile(sample_euler_ancestral)
    sh = torch.compile(sample_heun)
    s = get_sigmas_karras(8)
    seen = []

    def step():
        seen.clear()
        x = torch.randn(4, 8) * 10
        return sa(m, x, s, callback=lambda d: seen.append(d["i"])), sh(m, x, s), list(seen)

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
