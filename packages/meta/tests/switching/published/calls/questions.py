import torch


def forward(x):
    if torch.compiler.is_compiling() or torch.compiler.is_dynamo_compiling():
        return x.sin() + 1
    return 1 + x.sin()


region = torch.compiler.nested_compile_region(lambda x: x.cos() + 1)
allowed = torch.compiler.allow_in_graph(lambda x: x * 4)
constant = torch.compiler.assume_constant_result(lambda: 3)
numpy_like = torch.compile(lambda x: region(region(allowed(x))) * constant(), fullgraph=True)
f = torch.compile(forward, fullgraph=True)
x = torch.ones(4)
torch.compiler.cudagraph_mark_step_begin()
print(f(x).tolist(), numpy_like(x).tolist())
assert not torch.compiler.is_compiling()
