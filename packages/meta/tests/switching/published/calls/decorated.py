import torch


@torch.compile
def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


@torch.compile(fullgraph=True, dynamic=False)
def fused(x, *, scale=2.0):
    return (x * scale).softmax(-1)


class Helper:
    @torch.compile(mode="default")
    def method(self, x):
        return x.relu() + 1

    @staticmethod
    @torch.compile()
    def static(x):
        return x.abs().sqrt()


x = torch.linspace(-2, 2, 12, requires_grad=True)
y = new_gelu(x).sum() + fused(x, scale=3.0)[0] + Helper().method(x).mean() + Helper.static(x).sum()
y.backward()
print(y.item(), x.grad.sum().item(), new_gelu.__name__)
