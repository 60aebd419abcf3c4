"""A wide set of library functions, results and gradients as in eager."""

import pytest
import torch
from torch.nn import functional as F


class Clamped(torch.autograd.Function):
    """A user's own derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() < 2)


def scatter_and_gather(x):
    index = x.argsort(1)
    return x.gather(1, index), torch.zeros_like(x).scatter_add(1, index, x), x.sort(1).values


def index_put(x):
    y = x.clone()
    y[torch.tensor([0, 2])] = x[torch.tensor([1, 3])] * 2
    y[:, 1] += 1
    return y


def losses(x):
    target = torch.arange(x.shape[0]) % x.shape[1]
    return (
        F.cross_entropy(x, target, label_smoothing=0.1),
        F.mse_loss(x, x.detach() + 1),
        F.smooth_l1_loss(x, torch.zeros_like(x)),
        F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
        F.kl_div(x.log_softmax(1), x.detach().softmax(1), reduction="batchmean"),
    )


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x.t()).float().sin()


def checkpointed(x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda v: (v.sin() @ v.t()).exp(), x * 0.1, use_reentrant=False)


def recurrent(x):
    hidden = torch.zeros(x.shape[1])
    outputs = []
    for row in x:
        hidden = torch.tanh(row + hidden * 0.5)
        outputs.append(hidden)
    return torch.stack(outputs), hidden


def convolutions(x):
    image = x.view(1, 1, *x.shape)
    kernel = x[:3, :3].reshape(1, 1, 3, 3)
    return (
        F.conv2d(image, kernel, padding=1),
        F.conv_transpose2d(image, kernel, stride=2),
        F.avg_pool2d(image, 2),
        F.max_pool2d(image, 2, return_indices=True),
        F.interpolate(image, scale_factor=2, mode="bilinear"),
        F.pad(image, (1, 2, 0, 1), mode="reflect"),
    )


def norms(x):
    return (
        F.layer_norm(x, x.shape[1:]),
        F.group_norm(x.unsqueeze(0), 2),
        F.normalize(x),
        x.norm(dim=1),
        torch.linalg.vector_norm(x),
        x.std(1),
        F.rms_norm(x, x.shape[1:]),
    )


PROGRAMS = {
    "autograd function": lambda x: Clamped.apply(x * 2) * x,
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x.exp()),
    "scatter": scatter_and_gather,
    "index_put": index_put,
    "losses": losses,
    "autocast": autocast,
    "checkpoint": checkpointed,
    "recurrent": recurrent,
    "convolutions": convolutions,
    "norms": norms,
    "cumulative": lambda x: (x.cumsum(0), x.cumprod(1), x.logcumsumexp(0)),
    "masks": lambda x: (x.masked_fill(x > 0, 0.5), x.tril(), torch.where(x > 0, x, 0.0)),
    "shapes": lambda x: (
        torch.cat([x, x * 2], 1), x.repeat(2, 1), x.roll(1, 0), x.flip(0), x.unfold(0, 2, 1) * 1,
        x.diagonal() * 2, torch.stack([x, x]), x.repeat_interleave(2, 0), x.reshape(-1, 2) + 1,
    ),
    "extremes": lambda x: (x.max(1), x.amin(0), x.topk(2), x.median(), x.clamp(-0.5, 0.5)),
    "double": lambda x: (x.double() * 2).sum().float(),
    "complex": lambda x: torch.view_as_real(torch.fft.fft(x)).square().sum(),
    "multi-head": lambda x: F.multi_head_attention_forward(
        x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1), 6, 2, torch.ones(18, 6) * 0.1,
        torch.zeros(18), None, None, False, 0.0, torch.eye(6), torch.zeros(6),
    )[0],
    "activations": lambda x: (
        F.gelu(x), F.silu(x), F.elu(x), F.leaky_relu(x), F.hardswish(x), F.mish(x), F.softplus(x),
        F.glu(x), F.relu6(x),
    ),
    "rrelu and dropouts": lambda x: (
        F.rrelu(x, training=True), F.alpha_dropout(x, 0.3, True), F.dropout1d(x, 0.5),
        F.gumbel_softmax(x), torch.bernoulli(x.sigmoid()), torch.normal(0.0, 1.0, (3,)),
        torch.randperm(5), torch.randint(0, 9, (4,)), x.clone().uniform_(), x.clone().normal_(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, same_as_eager) -> None:
    same_as_eager(PROGRAMS[name], torch.randn(4, 6).requires_grad_(), exact=False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_without_grad(name, same_as_eager) -> None:
    with torch.no_grad():
        same_as_eager(PROGRAMS[name], torch.randn(4, 6), exact=False)
