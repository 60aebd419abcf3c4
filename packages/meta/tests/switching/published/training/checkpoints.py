import copy
import io
import pickle

import torch

torch.manual_seed(0)


def build():
    return torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Dropout(0.0), torch.nn.BatchNorm1d(4)
    )


model = build()
compiled = torch.compile(model) if COMPILES else model
x = torch.randn(5, 4)
compiled.train()
print(compiled(x).sum().item())
compiled.eval()
assert model.training is False
print(compiled(x).sum().item())
if COMPILES:
    keys = list(compiled.state_dict())
    assert all(key.startswith("_orig_mod.") for key in keys), keys
    assert compiled._orig_mod is model
    buffer = io.BytesIO()
    torch.save(compiled.state_dict(), buffer)
    buffer.seek(0)
    again = torch.compile(build())
    again.load_state_dict(torch.load(buffer))
    again.eval()
    torch.testing.assert_close(again(x), model(x))
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert isinstance(other, torch._dynamo.OptimizedModule)
        assert other._orig_mod is not model
        torch.testing.assert_close(other(x), model(x))
    compiled.note = "kept inside"
    assert model.note == "kept inside"
    compiled.double().float()
    compiled.register_forward_hook(lambda module, args, out: out + 1)
    print(compiled(x).sum().item() - 20)
else:
    print(compiled(x).sum().item())
