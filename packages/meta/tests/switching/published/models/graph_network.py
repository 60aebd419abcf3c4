import torch
import torch.nn as nn

N = 3


class MessagePassing(nn.Module):
    def propagate(self, edge_index, x, **kw):
        src, dst = edge_index
        m = self.message(x_j=x.index_select(0, src), **kw)
        out = x.new_zeros(x.size(0), m.size(-1))
        return out.scatter_add_(0, dst.view(-1, 1).expand_as(m), m)

    def message(self, x_j):
        return x_j


class GCN(MessagePassing):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o, bias=False)
        self.bias = nn.Parameter(torch.zeros(o))

    def forward(self, x, ei):
        n = x.size(0)
        loop = torch.arange(n)
        ei = torch.cat([ei, torch.stack([loop, loop])], 1)
        deg = torch.zeros(n).scatter_add_(0, ei[1], torch.ones(ei.size(1)))
        d = deg.pow(-0.5)
        d = d.masked_fill(d == float("inf"), 0)
        norm = d[ei[0]] * d[ei[1]]
        return self.propagate(ei, self.lin(x), norm=norm) + self.bias

    def message(self, x_j, norm):
        return norm.view(-1, 1) * x_j


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = GCN(8, 16)
        self.b = GCN(16, 4)

    def forward(self, x, ei):
        return self.b(torch.dropout(self.a(x, ei).relu(), 0.0, self.training), ei).log_softmax(-1)


def build():
    m = torch.compile(Net(), dynamic=True)
    o = torch.optim.Adam(m.parameters(), lr=0.01, weight_decay=5e-4)
    i = [0]

    def step():
        i[0] += 1
        n = 20 + i[0] % 7
        x = torch.randn(n, 8)
        ei = torch.randint(n, (2, 50 + i[0] % 5))
        y = torch.randint(4, (n,))
        o.zero_grad()
        l = torch.nn.functional.nll_loss(m(x, ei), y)
        l.backward()
        o.step()
        return l

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
