import torch
import torch.nn as nn

N = 3


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


def rk4(func, t, dt, t1, y):
    k1 = func(t, y)
    k2 = func(t + dt / 3, y + dt * k1 / 3)
    k3 = func(t + dt * 2 / 3, y + dt * (k2 - k1 / 3))
    k4 = func(t1, y + dt * (k1 - k2 + k3))
    return (k1 + 3 * (k2 + k3) + k4) * dt * 0.125


def odeint(func, y0, t):
    sol = torch.empty(len(t), *y0.shape, dtype=y0.dtype)
    sol = [y0]
    y = y0
    for t0, t1 in zip(t[:-1], t[1:]):
        dt = t1 - t0
        y = y + rk4(func, t0, dt, t1, y)
        sol.append(y)
    return torch.stack(sol)


def build():
    func = ODEFunc()
    opt = torch.optim.RMSprop(func.parameters(), lr=1e-3)
    t = torch.linspace(0, 1, 10)
    solve = torch.compile(odeint)

    def step():
        y0 = torch.randn(20, 1, 2)
        yt = torch.randn(10, 20, 1, 2)
        opt.zero_grad()
        p = solve(func, y0, t)
        loss = torch.mean(torch.abs(p - yt))
        loss.backward()
        opt.step()
        return loss, p, [q.grad for q in func.parameters()]

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
