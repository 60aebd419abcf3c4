import torch
from torch._dynamo import OptimizedModule

torch.manual_seed(0)


class LightningModule(torch.nn.Module):
    _compiler_ctx = None


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.l1 = torch.nn.Linear(6, 3)

    def forward(self, x):
        return torch.relu(self.l1(x))

    def training_step(self, batch, batch_idx):
        return self(batch).pow(2).mean()


def from_compiled(model):
    assert isinstance(model, OptimizedModule), type(model)
    orig = model._orig_mod
    assert isinstance(orig, LightningModule)
    orig._compiler_ctx = {
        "original_forward": orig.forward,
        "original_training_step": orig.training_step,
    }
    orig.forward = model.dynamo_ctx(orig.forward)
    orig.training_step = model.dynamo_ctx(orig.training_step)
    return orig


compiled = torch.compile(Net()) if COMPILES else None
model = from_compiled(compiled) if COMPILES else Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(2):
    loss = model.training_step(torch.ones(2, 6) * (i + 1), i)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
