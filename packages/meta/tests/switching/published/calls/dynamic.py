import torch

compiled = torch.compile(lambda x: (x * 2).cumsum(0) + x.shape[0], dynamic=True)
for n in (2, 5, 9):
    print(compiled(torch.arange(n, dtype=torch.float32)).tolist())
marked = torch.compile(lambda x: x.mean(0))
for n in (3, 4, 5):
    x = torch.ones(n, 2)
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.maybe_mark_dynamic(x, 1)
    print(marked(x).tolist())
