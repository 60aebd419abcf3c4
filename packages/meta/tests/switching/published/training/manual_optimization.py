import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8))
        self.automatic_optimization = False
        self.logged = {}

    def log(self, name, value):
        self.logged[name] = value.detach()

    def training_step(self, batch, batch_idx):
        of_encoder, of_decoder = self.optimizers
        mean, log_variance = self.encoder(batch).chunk(2, -1)
        sample = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        error = F.mse_loss(self.decoder(sample), batch)
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).mean()
        loss = error + 0.1 * divergence
        of_encoder.zero_grad()
        of_decoder.zero_grad()
        loss.backward()
        of_encoder.step()
        if batch_idx % 2 == 0:
            of_decoder.step()
        self.log("error", error)
        self.log("divergence", divergence)
        return loss


model = Autoencoder()
model.optimizers = [
    torch.optim.Adam(model.encoder.parameters(), lr=0.01),
    torch.optim.SGD(model.decoder.parameters(), lr=0.1),
]
model.training_step = torch.compile(model.training_step)
for index in range(4):
    loss = model.training_step(torch.randn(16, 8), index)
    print(f"{loss.item():.5f}", *(f"{value.item():.5f}" for value in model.logged.values()))
    try:
        loss.backward()
    except RuntimeError as error:
        print(str(error).partition(".")[0].partition("(")[0])
print(sum(p.double().norm() for p in model.parameters()).item())
