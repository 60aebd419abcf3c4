import torch
import torch.nn as nn

N = 3


def build():
    mods = [nn.Linear(8, 8) for _ in range(6)]
    opts = [
        torch.optim.Adam(mods[0].parameters(), lr=torch.tensor(0.01)),
        torch.optim.SGD(mods[1].parameters(), lr=0.1, momentum=0.9),
        torch.optim.Rprop(mods[2].parameters(), lr=torch.tensor(0.01)),
        torch.optim.AdamW(mods[3].parameters(), lr=0.01, amsgrad=True),
        torch.optim.Adagrad(mods[4].parameters()),
        torch.optim.NAdam(mods[5].parameters()),
    ]
    steps = []
    for o in opts:
        s = torch.optim.lr_scheduler.LinearLR(o, total_iters=5)

        @torch.compile(fullgraph=False)
        def fn(o=o, s=s):
            o.step()
            s.step()

        steps.append(fn)
    opts[1].step = torch.compile(opts[1].step)

    def step():
        x = torch.randn(4, 8)
        r = []
        for m, o, s in zip(mods, opts, steps):
            o.zero_grad()
            m(x).pow(2).sum().backward()
            s()
            r.append(m.weight.detach().clone())
        return r

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
