import torch
import torch.nn as nn

N = 3


@torch.compile
class Net(nn.Module):
    """doc"""

    def __init__(self, w=8):
        super().__init__()
        self.l = nn.Linear(8, w)

    def forward(self, x):
        return torch.relu(self.l(x)) * 2


class Plain:
    def __init__(self, a):
        self.a = a

    def scaled(self, x):
        return x * self.a + 1

    def __call__(self, x):
        return self.scaled(x).sin()


P = torch.compile(Plain)


def build():
    n = Net()
    n2 = Net(w=4)
    p = P(3.0)
    try:
        isi = isinstance(n, Net)
    except TypeError as e:
        isi = str(e)

    def step():
        x = torch.randn(4, 8)
        out = n(x)
        out.sum().backward()
        return out, n2(x), p(x), p.scaled(x), type(n).__name__, isi, sorted(n.state_dict())

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
