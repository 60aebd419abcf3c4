"""Losses and metrics of libraries."""

from __future__ import annotations

from typing import Any

import torch

from integration_tests.libraries.programs.training import perceptron
from integration_tests.libraries.workload import Compile, Program, workload


@workload("catalyst")
def catalyst_losses(compile: Compile) -> Program:
    from catalyst.contrib.losses import FocalLossMultiClass

    model, loss_of = perceptron(), FocalLossMultiClass()
    loss_fn = compile(lambda x, y: loss_of(model(x), y))

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = loss_fn(torch.randn(4, 8), torch.randint(0, 3, (4,)))
        loss.backward()
        return loss

    return Program(step, model)


@workload("torchmetrics")
def torchmetrics_collection(compile: Compile) -> Program:
    from torchmetrics import MetricCollection
    from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC, MulticlassF1Score

    metrics = MetricCollection([
        MulticlassAccuracy(num_classes=3, validate_args=False),
        MulticlassF1Score(num_classes=3, validate_args=False),
        MulticlassAUROC(num_classes=3, thresholds=8, validate_args=False),
    ])  # fmt: skip
    update = compile(metrics.update)

    def step() -> Any:
        update(torch.randn(16, 3).softmax(-1), torch.randint(0, 3, (16,)))
        return metrics.compute()

    return Program(step)


@workload("torchmetrics")
def torchmetrics_functional(compile: Compile) -> Program:
    from torchmetrics.functional.image import structural_similarity_index_measure
    from torchmetrics.functional.regression import pearson_corrcoef, r2_score

    @compile
    def scores(x: torch.Tensor, y: torch.Tensor) -> Any:
        flat = x.flatten(), y.flatten()
        ssim = structural_similarity_index_measure(x, y, data_range=1.0)
        return ssim, pearson_corrcoef(*flat), r2_score(*flat)

    def step() -> Any:
        x = torch.rand(2, 1, 24, 24)
        return scores(x, x + 0.1 * torch.rand_like(x))

    return Program(step)


@workload("pytorch-metric-learning")
def metric_learning_triplets(compile: Compile) -> Program:
    from pytorch_metric_learning import losses, miners

    model = perceptron()
    miner, loss_of = miners.MultiSimilarityMiner(), losses.TripletMarginLoss()

    @compile
    def loss_fn(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        embeddings = model(x)
        return loss_of(embeddings, labels, miner(embeddings, labels))

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = loss_fn(torch.randn(12, 8), torch.arange(12) % 3)
        loss.backward()
        return loss

    return Program(step, model)


@workload("pytorch-metric-learning")
def metric_learning_arcface(compile: Compile) -> Program:
    from pytorch_metric_learning import losses

    model, loss_of = perceptron(), losses.ArcFaceLoss(num_classes=4, embedding_size=3)
    loss_fn = compile(lambda x, labels: loss_of(model(x), labels))

    def step() -> torch.Tensor:
        model.zero_grad()
        loss_of.zero_grad()
        loss = loss_fn(torch.randn(12, 8), torch.randint(0, 4, (12,)))
        loss.backward()
        return loss

    return Program(step, model, loss_of)


@workload("entmax")
def entmax_loss(compile: Compile) -> Program:
    from entmax import entmax15, sparsemax

    model = perceptron()

    @compile
    def loss_fn(x: torch.Tensor) -> torch.Tensor:
        logits = model(x)
        return entmax15(logits, dim=-1).square().sum() + sparsemax(logits, dim=-1)[:, 0].sum()

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = loss_fn(torch.randn(4, 8))
        loss.backward()
        return loss

    return Program(step, model)


@workload("piq")
def piq_losses(compile: Compile) -> Program:
    import piq

    @compile
    def scores(x: torch.Tensor, y: torch.Tensor) -> Any:
        return piq.ssim(x, y), piq.gmsd(x, y), piq.total_variation(x), piq.vif_p(x, y)

    def step() -> Any:
        x = torch.rand(1, 3, 48, 48, requires_grad=True)
        found = scores(x, torch.rand(1, 3, 48, 48))
        sum(found).backward()
        return found, x.grad

    return Program(step)


@workload("pytorch-msssim")
def msssim_loss(compile: Compile) -> Program:
    from pytorch_msssim import MS_SSIM, SSIM

    ssim, many = SSIM(data_range=1.0, channel=3), MS_SSIM(data_range=1.0, channel=1, win_size=3)
    loss_fn = compile(lambda x, y: (1 - ssim(x, y)) + (1 - many(x[:, :1], y[:, :1])))

    def step() -> Any:
        x = torch.rand(1, 3, 48, 48, requires_grad=True)
        loss = loss_fn(x, torch.rand(1, 3, 48, 48))
        loss.backward()
        return loss, x.grad

    return Program(step)


@workload("lpips", "torchvision")
def lpips_distance(compile: Compile) -> Program:
    import lpips

    distance = lpips.LPIPS(net="squeeze", pretrained=False, pnet_rand=True, verbose=False).eval()
    compiled = compile(distance)

    def step() -> Any:
        x = torch.rand(1, 3, 64, 64, requires_grad=True)
        value = compiled(x, torch.rand(1, 3, 64, 64))
        value.sum().backward()
        return value, x.grad

    return Program(step)
