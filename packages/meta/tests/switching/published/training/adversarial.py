import torch
import torch.nn as nn

N = 3


class G(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.Sequential(
            nn.Linear(16, 64),
            nn.BatchNorm1d(64, 0.8),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(64, 64),
            nn.Tanh(),
        )

    def forward(self, z):
        img = self.m(z)
        return img.view(img.size(0), 1, 8, 8)


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.Sequential(
            nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, 8, 3, 2, 1)),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Flatten(),
            nn.Linear(128, 1),
        )

    def forward(self, x):
        return self.m(x)


def build():
    g = torch.compile(G())
    d = torch.compile(D())
    og = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    od = torch.optim.RMSprop(d.parameters(), lr=2e-4)
    loss = nn.BCEWithLogitsLoss()

    def gp(real, fake):
        a = torch.rand(real.size(0), 1, 1, 1)
        x = (a * real + (1 - a) * fake).requires_grad_(True)
        y = d(x)
        gr = torch.autograd.grad(
            y, x, torch.ones_like(y), create_graph=True, retain_graph=True, only_inputs=True
        )[0]
        return ((gr.view(gr.size(0), -1).norm(2, dim=1) - 1) ** 2).mean()

    def step():
        real = torch.randn(8, 1, 8, 8)
        z = torch.randn(8, 16)
        valid = torch.ones(8, 1)
        fakel = torch.zeros(8, 1)
        og.zero_grad()
        gen = g(z)
        gl = loss(d(gen), valid)
        gl.backward()
        og.step()
        od.zero_grad()
        dl = (loss(d(real), valid) + loss(d(gen.detach()), fakel)) / 2
        dl.backward()
        od.step()
        od.zero_grad()
        p = gp(real, gen.detach())
        (10 * p).backward()
        od.step()
        return gl, dl, p, [q.grad for q in d.parameters()]

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
