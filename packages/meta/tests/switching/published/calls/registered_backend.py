import torch
from functorch.compile import make_boxed_func
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd

seen = []


@register_backend
def my_registered(gm, example_inputs):
    seen.append(len(gm.graph.nodes))
    return gm.forward


def inner(gm, example_inputs):
    seen.append("aot")
    return make_boxed_func(gm.forward)


aot_backend = aot_autograd(fw_compiler=inner)
f = torch.compile(lambda x: x.sin() + 1, backend="my_registered")
g = torch.compile(lambda x: x.cos() * 2, backend=aot_backend)
x = torch.arange(3.0, requires_grad=True)
y = f(x).sum() + g(x).sum()
y.backward()
print(y.item(), x.grad.tolist())
if COMPILES:
    assert seen.count("aot") == 2 and len(seen) == 3, seen
    assert "my_registered" in torch.compiler.list_backends()
