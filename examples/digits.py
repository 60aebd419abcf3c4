"""Training on real data: a small convolutional network on scikit-learn's handwritten digits.

In: 1797 images of 8 x 8 pixels. Out: figures and checks.
Invariant: the eager run and the compiled one start from the same weights and see the same batches
in the same order; the optimizer is torch's own, outside of what is compiled.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from checks import Part
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional as F

import flambeau

EPOCHS = 8
BATCH = 64
SEED = 0

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


class DigitsNet(nn.Module):
    """Three convolutions with batch norm, an average over the image, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            self.block(1, 16), self.block(16, 32), nn.MaxPool2d(2), self.block(32, 64)
        )
        self.classify = nn.Linear(64, 10)

    @staticmethod
    def block(before: int, after: int) -> nn.Module:
        """Convolution, batch norm, relu."""
        convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        """Scores, [n, 10], of images, [n, 1, 8, 8] in 0..1."""
        return self.classify(self.features(images).mean(dim=(2, 3)))


def loss_of(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """What is compiled: the model and its loss, one scalar."""
    return F.cross_entropy(model(images), labels)


def data() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Train images, train labels, test images, test labels: 1437 and 360 of them."""
    from sklearn.datasets import load_digits  # here: the toy part runs without it

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    train, test = order[:1437], order[1437:]
    return images[train], labels[train], images[test], labels[test]


def steps(images: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Full batches, shuffled anew each epoch, the same for every run."""
    generator = torch.Generator().manual_seed(SEED)
    for _ in range(EPOCHS):
        order = torch.randperm(len(labels), generator=generator)
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            yield images[chosen], labels[chosen]


@dataclass
class Run:
    """One model in training: its loss function, its curve, its milliseconds by step."""

    model: nn.Module
    loss: Loss
    curve: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)

    def step(self, images: Tensor, labels: Tensor) -> None:
        """Forward, backward, update."""
        start = time.perf_counter()
        self.optimizer.zero_grad()
        value = self.loss(self.model, images, labels)
        value.backward()
        self.optimizer.step()
        self.times.append((time.perf_counter() - start) * 1e3)
        self.curve.append(value.item())


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of images whose digit is found."""
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def run(progress: Progress, backend: str = "inductor") -> Part:
    """Train twice from the same start, a step of each in turn, and compare."""
    part = Part("Training: a CNN with batch norm on handwritten digits")
    images, labels, test_images, test_labels = data()
    torch.manual_seed(SEED)
    compiled = flambeau.compile(loss_of, backend=backend)
    eager = Run(DigitsNet(), loss_of)
    own = Run(copy.deepcopy(eager.model), compiled)
    batches = list(steps(images, labels))
    for batch in progress.track(batches, description="digits"):
        eager.step(*batch)
        own.step(*batch)
    start, whole = compare(own.curve, eager.curve)
    found = accuracy(own.model, test_images, test_labels)
    part.figure("images", f"{len(labels)} to train on, {len(test_labels)} to test on")
    part.figure("steps", f"{len(batches)} of {BATCH} images, Adam outside of what is compiled")
    _describe(part, eager, own, flambeau.report(compiled))
    part.check("the first 20 losses are eager's within 1e-3", f"{start:.1e} apart", start < 1e-3)
    part.check("the curve follows eager's (mean distance < 0.02)", f"{whole:.4f}", whole < 0.02)
    part.check("test accuracy > 97 %", f"{found:.2%}", found > 0.97)
    return part


def _describe(part: Part, eager: Run, own: Run, report: flambeau.Report) -> None:
    part.figure("loss, eager", curve_line(eager.curve))
    part.figure("loss, compiled", curve_line(own.curve))
    before, after = statistics.median(eager.times), statistics.median(own.times)
    part.figure("eager", f"{before:.2f} ms a step")
    part.figure("compiled", f"{after:.2f} ms a step ({before / after:.2f} x)")
    part.figure("first step", f"{own.times[0] / 1e3:.2f} s")
    part.figure("graphs", f"{report.graphs}, {len(report.breaks)} graph breaks")
    part.figure("guards", str(report.guards))
    part.figure("kernels", f"{report.kernels}, of {report.fused_ops} fused operations")
    saved, everything = report.saved_bytes, report.saved_bytes_save_all
    part.figure("kept for backward", f"{saved:,} bytes; saving everything: {everything:,}")
    part.check("min-cut keeps less than everything", f"{saved:,}", 0 < saved < everything)
    fell = report.fallbacks
    part.check("no graph fell back to eager", f"{len(fell)} did", not fell)


def compare(curve: list[float], expected: list[float]) -> tuple[float, float]:
    """The largest distance over the first 20 steps, and the mean distance over all.

    Rounding differs between the two runs and training amplifies it, so that late steps may only
    be compared loosely.
    """
    apart = [abs(a - b) for a, b in zip(curve, expected, strict=True)]
    return max(apart[:20]), sum(apart) / len(apart)


def curve_line(curve: list[float]) -> str:
    """Some points of the curve."""
    points = [0, 4, 19, len(curve) // 2, len(curve) - 1]
    return "  ".join(f"{curve[i]:.4f} (step {i + 1})" for i in points)
