"""Diffusion, codecs, codebooks, self-supervision."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from integration_tests.libraries.programs.text import layer
from integration_tests.libraries.workload import Compile, Program, workload


def small_unet() -> torch.nn.Module:
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1,
        block_out_channels=(16, 32), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=4, attention_head_dim=8,
    )  # fmt: skip


@workload("diffusers")
def diffusers_ddpm_train(compile: Compile) -> Program:
    from diffusers import DDPMScheduler

    model, scheduler = small_unet(), DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = compile(model)

    def step() -> torch.Tensor:
        images, noise = torch.rand(2, 3, 16, 16), torch.randn(2, 3, 16, 16)
        times = torch.randint(0, 100, (2,))
        optimizer.zero_grad()
        noisy = scheduler.add_noise(images, noise, times)
        loss = F.mse_loss(compiled(noisy, times, return_dict=False)[0], noise)
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model)


@workload("diffusers")
def diffusers_pipeline(compile: Compile) -> Program:
    from diffusers import DDIMPipeline, DDIMScheduler

    unet = small_unet().eval()
    unet.forward = compile(unet.forward)
    pipeline = DDIMPipeline(unet=unet, scheduler=DDIMScheduler(num_train_timesteps=100))
    pipeline.set_progress_bar_config(disable=True)

    def step() -> Any:
        made = pipeline(batch_size=1, num_inference_steps=3, output_type="np").images
        return torch.from_numpy(made)

    return Program(step, unet)


@workload("diffusers")
def diffusers_schedulers_step(compile: Compile) -> Program:
    from diffusers import DPMSolverMultistepScheduler, EulerDiscreteScheduler

    schedulers = EulerDiscreteScheduler(), DPMSolverMultistepScheduler()
    advance = [compile(scheduler.step) for scheduler in schedulers]
    model = compile(lambda x, t: (x * 0.9).tanh() * 0.1)

    def step() -> Any:
        found = []
        for scheduler, advanced in zip(schedulers, advance, strict=True):
            scheduler.set_timesteps(4)
            sample = torch.randn(1, 3, 8, 8) * scheduler.init_noise_sigma
            for t in scheduler.timesteps:
                noise = model(scheduler.scale_model_input(sample, t), t)
                sample = advanced(noise, t, sample).prev_sample
            found.append(sample)
        return found

    return Program(step)


@workload("diffusers")
def diffusers_autoencoder_train(compile: Compile) -> Program:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(block_out_channels=(8, 16), norm_num_groups=4, latent_channels=4,
                          down_block_types=("DownEncoderBlock2D",) * 2,
                          up_block_types=("UpDecoderBlock2D",) * 2)  # fmt: skip

    @compile
    def loss_fn(images: torch.Tensor) -> torch.Tensor:
        posterior = model.encode(images).latent_dist
        decoded = model.decode(posterior.sample()).sample
        return F.mse_loss(decoded, images) + 1e-3 * posterior.kl().mean()

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = loss_fn(torch.rand(1, 3, 16, 16))
        loss.backward()
        return loss

    return Program(step, model)


@workload("denoising-diffusion-pytorch")
def denoising_diffusion_train(compile: Compile) -> Program:
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet

    model = Unet(dim=16, dim_mults=(1, 2), flash_attn=False, attn_heads=2, attn_dim_head=8)
    diffusion = GaussianDiffusion(model, image_size=16, timesteps=50)
    compiled = compile(diffusion)

    def step() -> torch.Tensor:
        diffusion.zero_grad()
        loss = compiled(torch.rand(2, 3, 16, 16))
        loss.backward()
        return loss

    return Program(step, diffusion)


@workload("denoising-diffusion-pytorch")
def denoising_diffusion_sample(compile: Compile) -> Program:
    from denoising_diffusion_pytorch import GaussianDiffusion1D, Unet1D

    model = Unet1D(dim=16, dim_mults=(1, 2), channels=4).eval()
    diffusion = GaussianDiffusion1D(model, seq_length=16, timesteps=20, sampling_timesteps=3)
    diffusion.model.forward = compile(diffusion.model.forward)
    return Program(lambda: diffusion.sample(batch_size=2), diffusion)


@workload("vector-quantize-pytorch")
def vector_quantize_train(compile: Compile) -> Program:
    from vector_quantize_pytorch import VectorQuantize

    model = VectorQuantize(dim=16, codebook_size=32, decay=0.8, commitment_weight=1.0)
    encoder, compiled = torch.nn.Linear(16, 16), compile(model)

    def step() -> Any:
        encoder.zero_grad()
        quantized, indices, loss = compiled(encoder(torch.randn(2, 12, 16)))
        (quantized.square().mean() + loss.sum()).backward()
        return quantized, indices, loss

    return Program(step, encoder, model)


@workload("vector-quantize-pytorch")
def finite_scalar_quantize(compile: Compile) -> Program:
    from vector_quantize_pytorch import FSQ, LFQ

    finite, free = FSQ(levels=[8, 5, 5]), LFQ(codebook_size=16, dim=4)
    encoder = torch.nn.Linear(8, 7)

    @compile
    def quantize(x: torch.Tensor) -> Any:
        x = encoder(x)
        return finite(x[..., :3]), free(x[..., 3:])

    def step() -> Any:
        encoder.zero_grad()
        first, second = quantize(torch.randn(2, 12, 8))
        (first[0].mean() + second[0].mean() + second[2].sum()).backward()
        return first, tuple(second)

    return Program(step, encoder)


@workload("compressai")
def compressai_hyperprior(compile: Compile) -> Program:
    from compressai.models import ScaleHyperprior

    model = ScaleHyperprior(8, 12)
    compiled = compile(model)

    def step() -> Any:
        model.zero_grad()
        out = compiled(torch.rand(1, 3, 64, 64))
        bits = sum(-likelihood.log2().sum() for likelihood in out["likelihoods"].values())
        (bits / 4096 + out["x_hat"].square().mean() + model.aux_loss()).backward()
        return out

    return Program(step, model)


@workload("byol-pytorch", "torchvision")
def byol_train(compile: Compile) -> Program:
    from byol_pytorch import BYOL
    from torchvision.models import resnet18

    net = resnet18(num_classes=8)
    learner = BYOL(net, image_size=32, hidden_layer="avgpool", projection_size=16,
                   projection_hidden_size=32, augment_fn=torch.nn.Identity())  # fmt: skip
    compiled = compile(learner)

    def step() -> torch.Tensor:
        learner.zero_grad()
        loss = compiled(torch.rand(2, 3, 32, 32))
        loss.backward()
        learner.update_moving_average()
        return loss

    return Program(step, learner)


@workload("lightly")
def lightly_self_supervision(compile: Compile) -> Program:
    from lightly.loss import BarlowTwinsLoss, NTXentLoss, VICRegLoss
    from lightly.models.modules import SimCLRProjectionHead

    head = SimCLRProjectionHead(16, 32, 8)
    losses = NTXentLoss(), BarlowTwinsLoss(), VICRegLoss()

    @compile
    def loss_fn(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = head(a), head(b)
        return sum(loss(a, b) for loss in losses)

    def step() -> torch.Tensor:
        head.zero_grad()
        x = torch.randn(8, 16)
        loss = loss_fn(x, x + 0.1 * torch.randn(8, 16))
        loss.backward()
        return loss

    return Program(step, head)


@workload("siren-pytorch")
def siren_gradients(compile: Compile) -> Program:
    from siren_pytorch import SirenNet

    return layer(SirenNet(dim_in=2, dim_hidden=32, dim_out=1, num_layers=3), compile, 16, 2)


@workload("slot-attention")
def slot_attention(compile: Compile) -> Program:
    from slot_attention import SlotAttention

    return layer(SlotAttention(num_slots=4, dim=32, iters=3), compile, 2, 20, 32)
