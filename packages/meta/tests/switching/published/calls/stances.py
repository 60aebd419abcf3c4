import torch

seen = []


def backend(gm, example_inputs):
    seen.append(gm)
    return gm.forward


torch._dynamo.config.recompile_limit = 16
f = torch.compile(lambda x: x.sin() * 2, backend=backend, dynamic=False)
x = torch.ones(3)


@torch.compiler.set_stance("force_eager")
def eagerly():
    return f(x)


print(eagerly().tolist())
assert not seen
with torch.compiler.set_stance("eager_on_recompile"):
    f(x)
assert not seen
print(f(x).tolist())
try:
    with torch.compiler.set_stance("fail_on_recompile"):
        f(torch.ones(4))
    print("went on" if not COMPILES else "no error")
except RuntimeError as error:
    print("went on" if COMPILES else error)
if COMPILES:
    assert len(seen) == 1
    torch.compiler.reset()
    f(x)
    assert len(seen) == 2
