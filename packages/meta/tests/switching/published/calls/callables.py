import functools

import torch

N = 3


class T:
    def __init__(self):
        self.w = torch.randn(8, 8, requires_grad=True)
        self.calls = 0

    def loss(self, x, *, scale=1.0):
        self.calls += 1
        return ((x @ self.w) * scale).pow(2).mean()

    @classmethod
    def make(cls, x):
        return x.cos() + 1

    @staticmethod
    def st(x):
        return x.sin() - 1

    @torch.compile
    def decorated(self, x):
        return x @ self.w + x

    @torch.compile(fullgraph=True, dynamic=False, mode="max-autotune-no-cudagraphs")
    def deco2(self, x, n=3):
        return x * n

    @property
    @torch.compile
    def norm(self):
        return self.w.norm()

    @staticmethod
    @torch.compile(options={"triton.cudagraphs": False, "max_autotune": False})
    def deco3(x):
        return torch.softmax(x, -1)

    @classmethod
    @torch.compile
    def deco4(cls, x):
        return cls.__name__, x.exp()


def f(a, b, *, c=1):
    return a * b + c


def build():
    t = T()
    lo = torch.compile(t.loss)
    cm = torch.compile(T.make)
    st = torch.compile(T.st)
    pa = torch.compile(functools.partial(f, c=3))
    pb = functools.partial(torch.compile(f), c=4)
    acts = {
        "gelu": torch.compile(lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5))),
        "sq": torch.compile(lambda x: x.relu() ** 2),
    }
    loss_fn = torch.compile(torch.nn.functional.mse_loss)
    ce = torch.compile(torch.nn.CrossEntropyLoss(label_smoothing=0.1))
    builtin = torch.compile(torch.add)
    m = torch.compile(torch.nn.functional.cross_entropy)
    zero = torch.compile(torch.optim.SGD([t.w], lr=0.1).step)
    vm = torch.compile(torch.vmap(f, in_dims=(0, None)))
    gr = torch.compile(torch.func.grad(lambda x: x.sin().sum()))
    jit = torch.compile(torch.func.functional_call)
    lin = torch.nn.Linear(8, 8)

    def step():
        x = torch.randn(4, 8)
        y = torch.randn(4, 8)
        t.w.grad = None
        l = lo(x, scale=2.0)
        l.backward()
        r = [
            l,
            t.w.grad.clone(),
            cm(x),
            st(x),
            pa(x, y),
            pa(x, y, c=5),
            pb(x, y),
            acts["gelu"](x),
            acts["sq"](x),
            loss_fn(x, y),
            ce(x, torch.randint(8, (4,))),
            builtin(x, y),
            builtin(x, y, alpha=2),
            m(x, torch.randint(8, (4,))),
            t.decorated(x),
            t.deco2(x),
            t.deco2(x, n=4),
            t.norm,
            t.deco3(x),
            t.deco4(x),
            t.calls,
        ]
        zero()
        r += [
            t.w.detach().clone(),
            vm(x, y[0]),
            gr(x),
            jit(lin, {"weight": y.T @ x, "bias": x[0]}, (x,)),
        ]
        return r

    return step


step = build()
for number in range(N):
    torch.manual_seed(number)
    for value in torch.utils._pytree.tree_leaves(step()):
        print(f"{value.double().norm():.6f}" if isinstance(value, torch.Tensor) else value)
