import copy
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelEmaV3(nn.Module):
    def __init__(self, model, decay=0.999):
        super().__init__()
        self.module = copy.deepcopy(model)
        self.module.eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model, step=None):
        ev = list(self.module.state_dict().values())
        mv = list(model.state_dict().values())
        for e, m in zip(ev, mv):
            if e.is_floating_point():
                e.lerp_(m, weight=1 - self.decay)
            else:
                e.copy_(m)


def one_hot(x, n, on, off):
    return torch.full((x.size(0), n), off).scatter_(1, x.long().view(-1, 1), on)


def mixup_target(t, n, lam=1.0, smoothing=0.1):
    off = smoothing / n
    on = 1 - smoothing + off
    return one_hot(t, n, on, off) * lam + one_hot(t.flip(0), n, on, off) * (1 - lam)


class SoftTargetCrossEntropy(nn.Module):
    def forward(self, x, target):
        return torch.sum(-target * F.log_softmax(x, dim=-1), dim=-1).mean()


class DropPath(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0.0 or not self.training:
            return x
        keep = 1 - self.p
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        r = x.new_empty(shape).bernoulli_(keep)
        if keep > 0.0:
            r.div_(keep)
        return x * r


class Blk(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.dw = nn.Conv2d(d, d, 7, padding=3, groups=d)
        self.norm = nn.BatchNorm2d(d)
        self.mlp = nn.Sequential(nn.Conv2d(d, 2 * d, 1), nn.GELU(), nn.Conv2d(2 * d, d, 1))
        self.gamma = nn.Parameter(1e-6 * torch.ones(d))
        self.dp = DropPath(0.1)

    def forward(self, x):
        return x + self.dp(self.mlp(self.norm(self.dw(x))).mul(self.gamma.reshape(1, -1, 1, 1)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 24, 4, 4)
        self.stages = nn.Sequential(Blk(24), nn.Conv2d(24, 32, 2, 2), Blk(32))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(32, 10))

    def forward_features(self, x):
        return self.stages(self.stem(x))

    def forward(self, x):
        return self.head(self.forward_features(x))


N = 3


def build():
    model = Net().to(memory_format=torch.channels_last)
    ema = ModelEmaV3(model)
    opt = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4
    )
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100)
    model = torch.compile(model, backend="inductor")
    ema_c = torch.compile(ema.module)
    loss_fn = SoftTargetCrossEntropy()
    amp = partial(torch.autocast, device_type="cpu", dtype=torch.bfloat16)

    def step():
        model.train()
        x = torch.randn(4, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        t = torch.randint(10, (4,))
        lam = 0.7
        xf = x.flip(0).mul_(1 - lam)
        x = x.mul(lam).add_(xf)
        tt = mixup_target(t, 10, lam)
        with amp():
            out = model(x)
            loss = loss_fn(out, tt)
        opt.zero_grad()
        loss.backward(create_graph=False)
        opt.step()
        ema.update(model)
        sched.step()
        model.eval()
        with torch.inference_mode():
            with amp():
                o = ema_c(x)
        return loss.item() * 0 + round(loss.item(), 1) * 0, loss, o

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
