import torch

graphs = []


def my_compiler(gm, example_inputs):
    graphs.append(gm)
    assert isinstance(gm, torch.fx.GraphModule)
    assert all(isinstance(each, torch.Tensor) for each in example_inputs)
    return gm.forward


def with_arguments(gm, example_inputs, *, mode=None, options=None):
    graphs.append((mode, options))
    return gm


@torch.compile(backend=my_compiler)
def f(a, b):
    return (a + b).relu()


g = torch.compile(lambda x: x * 2, backend=with_arguments, options={"level": 3})
h = torch.compile(lambda x: x * 3, backend=with_arguments, mode="fast")
x = torch.arange(-2.0, 3.0)
print(f(x, x).tolist(), g(x).tolist(), h(x).tolist())
if COMPILES:
    assert len(graphs) == 3 and graphs[1] == (None, {"level": 3}) and graphs[2] == ("fast", None), (
        graphs
    )
    assert torch.compiler.is_compiling() is False
