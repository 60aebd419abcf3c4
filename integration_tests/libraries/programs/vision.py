"""Image models: training steps and inference as the pages of the libraries have them."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from integration_tests.libraries.workload import Compile, Program, workload


def classifier(model: torch.nn.Module, compile: Compile, size: int, classes: int = 10) -> Program:
    """A training step of a classifier: SGD with momentum on cross entropy."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    compiled = compile(model)

    def step() -> torch.Tensor:
        images, labels = torch.rand(2, 3, size, size), torch.randint(0, classes, (2,))
        optimizer.zero_grad()
        loss = F.cross_entropy(compiled(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("timm")
def timm_convnext_train(compile: Compile) -> Program:
    import timm

    return classifier(timm.create_model("convnext_atto", num_classes=10), compile, 64)


@workload("timm")
def timm_vit_features(compile: Compile) -> Program:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=64).eval()
    features = compile(model.forward_features)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return features(torch.rand(2, 3, 64, 64))

    return Program(step, model)


@workload("torchvision")
def torchvision_resnet_train(compile: Compile) -> Program:
    from torchvision.models import resnet18

    return classifier(resnet18(num_classes=10), compile, 64)


@workload("vit-pytorch", "einops")
def vit_pytorch_vit_train(compile: Compile) -> Program:
    from vit_pytorch import ViT

    model = ViT(image_size=64, patch_size=16, num_classes=10, dim=64, depth=2, heads=4,
                mlp_dim=128, dropout=0.1, emb_dropout=0.1)  # fmt: skip
    return classifier(model, compile, 64)


@workload("vit-pytorch")
def vit_pytorch_simmim(compile: Compile) -> Program:
    from vit_pytorch import ViT
    from vit_pytorch.simmim import SimMIM

    vit = ViT(image_size=64, patch_size=16, num_classes=10, dim=64, depth=2, heads=4, mlp_dim=128)
    mim = SimMIM(encoder=vit, masking_ratio=0.5)
    compiled = compile(mim)

    def step() -> torch.Tensor:
        mim.zero_grad()
        loss = compiled(torch.rand(2, 3, 64, 64))
        loss.backward()
        return loss

    return Program(step, mim)


@workload("kornia")
def kornia_augmentation(compile: Compile) -> Program:
    import kornia.augmentation as K

    augment = K.AugmentationSequential(
        K.RandomHorizontalFlip(p=0.5), K.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0),
        K.RandomAffine(degrees=15.0, p=0.8), data_keys=["input"],
    )  # fmt: skip
    compiled = compile(augment)
    return Program(lambda: compiled(torch.rand(4, 3, 32, 32)), augment)


@workload("kornia")
def kornia_filters(compile: Compile) -> Program:
    import kornia

    @compile
    def pipeline(images: torch.Tensor) -> torch.Tensor:
        gray = kornia.color.rgb_to_grayscale(images)
        blurred = kornia.filters.gaussian_blur2d(gray, (5, 5), (1.5, 1.5))
        edges = kornia.filters.sobel(blurred)
        return kornia.morphology.dilation(edges, torch.ones(3, 3))

    return Program(lambda: pipeline(torch.rand(2, 3, 32, 32)))


@workload("segmentation-models-pytorch")
def smp_unet_train(compile: Compile) -> Program:
    import segmentation_models_pytorch as smp

    model = smp.Unet("resnet18", encoder_weights=None, in_channels=3, classes=3)
    loss_of = smp.losses.DiceLoss(mode="multiclass")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    @compile
    def loss_fn(images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        return loss_of(model(images), masks)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_fn(torch.rand(2, 3, 64, 64), torch.randint(0, 3, (2, 64, 64)))
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("monai")
def monai_unet_train(compile: Compile) -> Program:
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    model = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16),
                 strides=(2, 2), num_res_units=2)  # fmt: skip
    loss_of = DiceCELoss(to_onehot_y=True, softmax=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    compiled = compile(model)

    def step() -> torch.Tensor:
        images, labels = torch.rand(1, 1, 16, 16, 16), torch.randint(0, 2, (1, 1, 16, 16, 16))
        optimizer.zero_grad()
        loss = loss_of(compiled(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("monai")
def monai_sliding_window(compile: Compile) -> Program:
    from monai.inferers import sliding_window_inference
    from monai.networks.nets import BasicUNet

    model = BasicUNet(spatial_dims=2, features=(4, 4, 8, 8, 16, 4), out_channels=2).eval()
    compiled = compile(model)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return sliding_window_inference(torch.rand(1, 1, 48, 48), (32, 32), 2, compiled)

    return Program(step, model)
