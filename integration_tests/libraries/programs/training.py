"""Training loops, optimizers and derivatives of libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from integration_tests.libraries.workload import Compile, Program, workload


def perceptron() -> torch.nn.Sequential:
    return torch.nn.Sequential(
        torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 3)
    )


def optimized(make: Callable[[Any], torch.optim.Optimizer], compile: Compile) -> Program:
    """Training steps of which the optimizer's is compiled."""
    model = perceptron()
    optimizer = make(model.parameters())
    if hasattr(optimizer, "train"):
        optimizer.train()
    update = compile(optimizer.step)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(4, 8)), torch.randint(0, 3, (4,)))
        loss.backward()
        update()
        return loss

    return Program(step, model, optimizer)


#: program: the distribution, its module, its class, what that is given besides parameters
OPTIMIZERS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "lion_step": ("lion-pytorch", "lion_pytorch", "Lion", {"lr": 1e-4, "weight_decay": 1e-2}),
    "adam_atan2_step": ("adam-atan2-pytorch", "adam_atan2_pytorch", "AdamAtan2", {"lr": 1e-4}),
    "schedulefree_step": (
        "schedulefree", "schedulefree", "AdamWScheduleFree", {"lr": 1e-3, "warmup_steps": 10},
    ),
    "prodigy_step": ("prodigyopt", "prodigyopt", "Prodigy", {"lr": 1.0}),
    "pytorch_optimizer_adan_step": (
        "pytorch_optimizer", "pytorch_optimizer", "Adan", {"lr": 1e-3},
    ),
    "pytorch_optimizer_lamb_step": (
        "pytorch_optimizer", "pytorch_optimizer", "Lamb", {"lr": 1e-3},
    ),
    "torch_optimizer_yogi_step": ("torch-optimizer", "torch_optimizer", "Yogi", {"lr": 1e-3}),
    "adabelief_step": (
        "adabelief-pytorch", "adabelief_pytorch", "AdaBelief",
        {"lr": 1e-3, "print_change_log": False},
    ),
}  # fmt: skip


def stepped(name: str, module: str, kind: str, given: dict[str, Any]) -> Callable[..., Program]:
    """The program of a row of `OPTIMIZERS`."""

    def build(compile: Compile) -> Program:
        make = getattr(importlib.import_module(module), kind)
        return optimized(lambda parameters: make(parameters, **given), compile)

    build.__name__ = name
    return build


for name, (distribution, *row) in OPTIMIZERS.items():
    workload(distribution)(stepped(name, *row))


@workload("muon-optimizer")
def muon_step(compile: Compile) -> Program:
    from muon import SingleDeviceMuon

    def make(parameters: Any) -> torch.optim.Optimizer:
        return SingleDeviceMuon([p for p in parameters if p.ndim == 2], lr=0.02)

    return optimized(make, compile)


@workload("bitsandbytes")
def bitsandbytes_linear4(compile: Compile) -> Program:
    import bitsandbytes

    model = torch.nn.Sequential(
        bitsandbytes.nn.Linear4bit(64, 64, compute_dtype=torch.float32), torch.nn.ReLU(),
        bitsandbytes.nn.Linear4bit(64, 8, compute_dtype=torch.float32),
    ).to("cpu")  # fmt: skip
    compiled = compile(model)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return compiled(torch.randn(4, 64))

    return Program(step)


@workload("torchao")
def torchao_int8_weights(compile: Compile) -> Program:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16)
    ).eval()
    quantize_(model, Int8WeightOnlyConfig())
    compiled = compile(model)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return compiled(torch.randn(4, 64))

    return Program(step)


@workload("ema-pytorch")
def ema_update(compile: Compile) -> Program:
    from ema_pytorch import EMA

    model = perceptron()
    ema = EMA(model, beta=0.99, update_after_step=0, update_every=1)
    update = compile(ema.update)

    def step() -> torch.Tensor:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
        update()
        return ema(torch.ones(2, 8))

    return Program(step, ema)


@workload("torch_ema")
def torch_ema_average(compile: Compile) -> Program:
    from torch_ema import ExponentialMovingAverage

    model = perceptron()
    ema = ExponentialMovingAverage(model.parameters(), decay=0.995)
    update, compiled = compile(ema.update), compile(model)

    def step() -> Any:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)
        update()
        with ema.average_parameters():
            averaged = compiled(torch.ones(2, 8))
        return averaged, compiled(torch.ones(2, 8)), ema.state_dict()

    return Program(step, model)


@workload("pytorch-lightning", "torchmetrics")
def lightning_fit(compile: Compile) -> Program:
    import pytorch_lightning
    import torchmetrics

    class Classifier(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = perceptron()
            self.accuracy = torchmetrics.classification.MulticlassAccuracy(num_classes=3)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            logits = self.net(batch[0])
            self.accuracy(logits, batch[1])
            self.log("accuracy", self.accuracy, on_step=True)
            return F.cross_entropy(logits, batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    module = Classifier()
    module.net = compile(module.net)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
             "enable_model_summary": False, "accelerator": "cpu"}  # fmt: skip

    def step() -> torch.Tensor:
        data = torch.utils.data.TensorDataset(torch.randn(8, 8), torch.randint(0, 3, (8,)))
        trainer = pytorch_lightning.Trainer(max_epochs=1, **quiet)
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=4))
        return trainer.callback_metrics["accuracy"]

    return Program(step, module)


@workload("lightning")
def lightning_fabric_train(compile: Compile) -> Program:
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inner = model
    model, optimizer = fabric.setup(compile(model), optimizer)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(4, 8)), torch.randint(0, 3, (4,)))
        fabric.backward(loss)
        optimizer.step()
        return loss

    return Program(step, inner)


@workload("skorch", installs=True)
def skorch_classifier(compile: Compile) -> Program:
    import numpy
    from skorch import NeuralNetClassifier

    net = NeuralNetClassifier(
        perceptron(), criterion=torch.nn.CrossEntropyLoss, max_epochs=1, lr=0.1, verbose=0,
        train_split=None, compile=True,
    ).initialize()  # fmt: skip

    def step() -> Any:
        x = numpy.asarray(torch.randn(16, 8))
        net.partial_fit(x, numpy.asarray(torch.randint(0, 3, (16,))))
        return torch.from_numpy(net.predict_proba(x))

    return Program(step)


@workload("pytorch-ignite")
def ignite_trainer(compile: Compile) -> Program:
    from ignite.engine import create_supervised_trainer
    from ignite.metrics import RunningAverage

    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trainer = create_supervised_trainer(compile(model), optimizer, torch.nn.CrossEntropyLoss())
    RunningAverage(output_transform=lambda x: x).attach(trainer, "loss")

    def step() -> Any:
        data = [(torch.randn(4, 8), torch.randint(0, 3, (4,))) for _ in range(2)]
        return trainer.run(data, max_epochs=1).metrics["loss"]

    return Program(step, model, optimizer)


@workload("opacus")
def opacus_private_step(compile: Compile) -> Program:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = GradSampleModule(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(),
                                                 torch.nn.Linear(16, 3)))  # fmt: skip
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0,
                            expected_batch_size=4)  # fmt: skip
    compiled = compile(model)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(torch.randn(4, 8)), torch.randint(0, 3, (4,)))
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model)


@workload("backpack-for-pytorch")
def backpack_batch_gradients(compile: Compile) -> Program:
    from backpack import backpack, extend
    from backpack.extensions import BatchGrad, Variance

    model = extend(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Sigmoid(),
                                       torch.nn.Linear(16, 3)))  # fmt: skip
    loss_of = extend(torch.nn.CrossEntropyLoss())
    compiled = compile(model)

    def step() -> Any:
        model.zero_grad()
        loss = loss_of(compiled(torch.randn(4, 8)), torch.randint(0, 3, (4,)))
        with backpack(BatchGrad(), Variance()):
            loss.backward()
        return loss, [(p.grad_batch, p.variance) for p in model.parameters()]

    return Program(step, model)


@workload("higher")
def higher_inner_loop(compile: Compile) -> Program:
    import higher

    model = perceptron()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_fn = compile(lambda logits, y: F.cross_entropy(logits, y))

    def step() -> torch.Tensor:
        model.zero_grad()
        x, y = torch.randn(4, 8), torch.randint(0, 3, (4,))
        with higher.innerloop_ctx(model, inner) as (fast, optimizer):
            optimizer.step(loss_fn(fast(x), y))
            loss = loss_fn(fast(x), y)
            loss.backward()
        return loss

    return Program(step, model)


@workload("captum")
def captum_integrated_gradients(compile: Compile) -> Program:
    from captum.attr import IntegratedGradients, Saliency

    model = compile(perceptron().eval())
    attribute, saliency = IntegratedGradients(model), Saliency(model)

    def step() -> Any:
        x = torch.randn(2, 8)
        return attribute.attribute(x, target=1, n_steps=5), saliency.attribute(x, target=0)

    return Program(step)


@workload("fvcore")
def fvcore_focal_and_giou(compile: Compile) -> Program:
    from fvcore.nn import giou_loss, sigmoid_focal_loss, smooth_l1_loss

    @compile
    def loss_fn(logits: torch.Tensor, labels: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:].exp()], 1)
        target = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand_as(corners)
        return (
            sigmoid_focal_loss(logits, labels, reduction="mean")
            + giou_loss(corners, target, reduction="mean")
            + smooth_l1_loss(corners, target, 0.1, reduction="mean")
        )

    def step() -> Any:
        logits, boxes = torch.randn(6, requires_grad=True), torch.randn(6, 4, requires_grad=True)
        loss = loss_fn(logits, (torch.rand(6) > 0.5).float(), boxes)
        loss.backward()
        return loss, logits.grad, boxes.grad

    return Program(step)


@workload("torchinfo", "thop")
def thop_profile_compiled(compile: Compile) -> Program:
    import thop
    import torchinfo

    model = perceptron()
    compiled = compile(model)

    def step() -> Any:
        counted = thop.profile(perceptron(), inputs=(torch.randn(2, 8),), verbose=False)
        told = torchinfo.summary(model, input_size=(2, 8), verbose=0).total_params
        return counted, told, compiled(torch.ones(2, 8))

    return Program(step, model)
