import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Recommender(nn.Module):
    def __init__(self, tables=3, dim=4):
        super().__init__()
        self.tables = nn.ModuleList(
            [nn.EmbeddingBag(20 + 7 * number, dim, mode="sum") for number in range(tables)]
        )
        self.bottom = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, dim))
        self.top = nn.Sequential(nn.Linear(dim + tables * (tables + 1) // 2, 8), nn.ReLU())
        self.out = nn.Linear(8, 1)

    def forward(self, dense, offsets, indices):
        x = self.bottom(dense)
        bags = [m(i, o) for m, i, o in zip(self.tables, indices, offsets, strict=True)]
        features = torch.stack([x, *bags], 1)
        products = torch.bmm(features, features.transpose(1, 2))
        count = features.shape[1]
        rows = torch.tensor([i for i in range(count) for j in range(i)])
        columns = torch.tensor([j for i in range(count) for j in range(i)])
        both = torch.cat([x, products[:, rows, columns]], 1)
        return torch.sigmoid(self.out(self.top(both))).squeeze(1)


model = Recommender()
compiled = torch.compile(model)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
for step in range(3):
    indices = [torch.randint(20, (24,)) for _ in range(3)]
    offsets = [torch.arange(0, 24, 3) for _ in range(3)]
    clicked = torch.randint(2, (8,)).float()
    loss = F.binary_cross_entropy(compiled(torch.randn(8, 5), offsets, indices), clicked)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}: {loss.item():.5f}")
model.eval()
with torch.no_grad():
    print(f"{compiled(torch.ones(8, 5), offsets, indices).double().sum():.5f}")
