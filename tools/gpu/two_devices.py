"""Two devices in one process: the same function on both, in turn, at once, and with gradients.

bash tools/gpu.sh python3 tools/gpu/two_devices.py
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau

ROUNDS = 12
"""Calls on each device: recordings are made after a few."""


def network(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    for _ in range(6):
        x = F.layer_norm(F.gelu(x @ w) @ v + x, (x.shape[-1],))
    return torch.softmax(x, -1)


def operands(device: int) -> tuple[Tensor, Tensor, Tensor]:
    place = torch.device("cuda", device)
    generator = torch.Generator(place).manual_seed(device)
    made = [torch.randn(64, 64, device=place, generator=generator) / 8 for _ in range(3)]
    return made[0], made[1].requires_grad_(), made[2].requires_grad_()


def check(fn: Callable[..., Tensor], device: int, failures: list[str]) -> None:
    """One step with gradients on a device, beside eager."""
    x, w, v = operands(device)
    got = fn(x, w, v)
    grads = torch.autograd.grad(got.square().sum(), (w, v))
    wanted = network(x, w, v)
    exact = torch.autograd.grad(wanted.square().sum(), (w, v))
    for own, other in zip((got, *grads), (wanted, *exact), strict=True):
        if own.device != x.device:
            failures.append(f"device {device}: a result on {own.device}")
        elif not torch.allclose(own, other, rtol=1e-3, atol=1e-4):
            failures.append(f"device {device}: off by {float((own - other).abs().max()):.1e}")


def main() -> int:
    """Run all; the exit status is 1 where a result is wrong or on the wrong device."""
    count = torch.cuda.device_count()
    if count < 2:
        print(f"{count} device: nothing to check")
        return 0
    failures: list[str] = []
    fn = flambeau.compile(network)
    for _ in range(ROUNDS):
        for device in (0, 1):
            check(fn, device, failures)
    torch.cuda.set_device(1)
    check(fn, 0, failures)
    torch.cuda.set_device(0)
    check(fn, 1, failures)
    threads = [
        threading.Thread(target=lambda d=d: [check(fn, d, failures) for _ in range(ROUNDS)])
        for d in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{4 * ROUNDS + 2} steps on two devices, {len(failures)} wrong")
    for text in failures[:10]:
        print(" ", text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
