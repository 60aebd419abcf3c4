import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
params = dict(model.named_parameters())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def adapted(params, x, y):
    gradients = grad(lambda own: F.mse_loss(functional_call(model, own, (x,)), y))(params)
    return {name: value - 0.1 * gradients[name] for name, value in params.items()}


@torch.compile
def meta_loss(params, x, y, x_query, y_query):
    def of_task(x, y, x_query, y_query):
        return F.mse_loss(functional_call(model, adapted(params, x, y), (x_query,)), y_query)

    return vmap(of_task)(x, y, x_query, y_query).mean()


for iteration in range(3):
    tasks = [torch.randn(3, 5, width) for width in (4, 1, 4, 1)]
    loss = meta_loss(params, *tasks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"iteration {iteration}: {loss.item():.5f}")
print(sum(p.double().norm() for p in model.parameters()).item())
