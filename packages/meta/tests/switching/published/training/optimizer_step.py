import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 4)
opt = torch.optim.Adam(model.parameters(), lr=torch.tensor(0.01))
sched = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.5)


@torch.compile(fullgraph=False)
def step():
    opt.step()


compiled_step = torch.compile(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).step)
for _ in range(3):
    opt.zero_grad()
    model(torch.ones(2, 4)).pow(2).sum().backward()
    step()
    sched.step()
    compiled_step()
print(model.weight.sum().item(), model.bias.sum().item())
