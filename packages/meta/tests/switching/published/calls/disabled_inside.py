import torch

calls = []


@torch.compiler.disable
def log(x):
    calls.append(x.sum().item())
    return x


@torch.compiler.disable(recursive=False, reason="it reads a file")
def middle(x):
    return helper(x) + 1


def helper(x):
    return x.cos() * 3


@torch.compile
def f(x):
    y = log(x.sin())
    return middle(y).exp()


for _ in range(2):
    print(f(torch.arange(3.0)).tolist())
print(len(calls), calls[0])
