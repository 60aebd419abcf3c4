import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model.compile(fullgraph=True)
x = torch.randn(4, 8)
for n in (4, 3, 2):
    print(model(x[:n]).sum().item())
print(list(model.state_dict()))
