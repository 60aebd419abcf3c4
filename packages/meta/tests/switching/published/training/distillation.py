import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def classifier(width):
    return nn.Sequential(nn.Linear(8, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 5))


teacher, student = classifier(32).eval(), classifier(8)
compiled_teacher = torch.compile(teacher, mode="max-autotune-no-cudagraphs")
compiled_student = torch.compile(student, fullgraph=True)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True)


@torch.compile
def distillation_loss(answer, wanted, labels, temperature=2.0):
    soft = F.kl_div(
        F.log_softmax(answer / temperature, -1),
        F.softmax(wanted / temperature, -1),
        reduction="batchmean",
    )
    return soft * temperature**2 + F.cross_entropy(answer, labels)


for epoch in range(3):
    inputs, labels = torch.randn(16, 8), torch.randint(5, (16,))
    with torch.inference_mode():
        wanted = compiled_teacher(inputs)
    loss = distillation_loss(compiled_student(inputs), wanted.clone(), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"epoch {epoch}: {loss.item():.5f}")
print(sum(p.double().norm() for p in student.parameters()).item())
