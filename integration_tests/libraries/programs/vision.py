"""Image models: training steps and inference as the pages of the libraries have them."""

from __future__ import annotations

from typing import Any

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
def vit_pytorch_cct_train(compile: Compile) -> Program:
    from vit_pytorch.cct import CCT

    model = CCT(img_size=(32, 32), embedding_dim=32, n_conv_layers=1, kernel_size=7, stride=2,
                padding=3, pooling_kernel_size=3, pooling_stride=2, pooling_padding=1,
                num_layers=2, num_heads=2, mlp_ratio=2.0, num_classes=10,
                positional_embedding="learnable")  # fmt: skip
    return classifier(model, compile, 32)


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


@workload("efficientnet-pytorch")
def efficientnet_train(compile: Compile) -> Program:
    from efficientnet_pytorch import EfficientNet

    return classifier(EfficientNet.from_name("efficientnet-b0"), compile, 96)


@workload("facenet-pytorch")
def facenet_embeddings(compile: Compile) -> Program:
    from facenet_pytorch import InceptionResnetV1

    model = InceptionResnetV1(pretrained=None).eval()
    compiled = compile(model)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return compiled(torch.rand(1, 3, 96, 96))

    return Program(step)


@workload("spandrel")
def spandrel_upscale(compile: Compile) -> Program:
    from spandrel.architectures.ESRGAN import ESRGAN

    model = ESRGAN(num_filters=8, num_blocks=1, scale=2).eval()
    compiled = compile(model)

    @torch.no_grad()
    def step() -> torch.Tensor:
        return compiled(torch.rand(1, 3, 16, 16))

    return Program(step, model)


@workload("ultralytics")
def ultralytics_yolo_train(compile: Compile) -> Program:
    from ultralytics.cfg import get_cfg
    from ultralytics.nn.tasks import DetectionModel

    model = DetectionModel("yolov8n.yaml", nc=4, verbose=False)
    model.args = get_cfg()
    compiled = compile(model)

    def step() -> Any:
        model.zero_grad()
        batch = {"img": torch.rand(1, 3, 64, 64), "cls": torch.tensor([[1.0], [2.0]]),
                 "bboxes": torch.rand(2, 4) * 0.4 + 0.3, "batch_idx": torch.zeros(2)}  # fmt: skip
        loss, parts = compiled(batch)
        loss.sum().backward()
        return loss, parts

    return Program(step, model)


@workload("ultralytics")
def ultralytics_yolo_predict(compile: Compile) -> Program:
    from ultralytics.nn.tasks import DetectionModel

    model = DetectionModel("yolo11n.yaml", nc=4, verbose=False).eval()
    compiled = compile(model)

    @torch.no_grad()
    def step() -> Any:
        return compiled(torch.rand(1, 3, 64, 64))[0]

    return Program(step)


@workload("effdet")
def effdet_focal_loss(compile: Compile) -> Program:
    from effdet.loss import huber_loss, new_focal_loss

    @compile
    def loss_fn(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        focal = new_focal_loss(logits, targets, 0.25, 1.5, normalizer=3.0)
        return focal.sum() + huber_loss(logits, targets, delta=0.1).sum()

    def step() -> Any:
        logits = torch.randn(2, 8, 4, requires_grad=True)
        loss = loss_fn(logits, (torch.rand(2, 8, 4) > 0.8).float())
        loss.backward()
        return loss, logits.grad

    return Program(step)


@workload("resnest")
def resnest_blocks(compile: Compile) -> Program:
    from resnest.torch.splat import SplAtConv2d

    model = SplAtConv2d(8, 8, 3, padding=1, radix=2, groups=2, norm_layer=torch.nn.BatchNorm2d)
    compiled = compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        out = compiled(torch.randn(2, 8, 8, 8))
        out.square().mean().backward()
        return out

    return Program(step, model)


@workload("segment-anything")
def segment_anything_masks(compile: Compile) -> Program:
    from segment_anything.modeling import MaskDecoder, PromptEncoder, TwoWayTransformer

    prompts = PromptEncoder(32, (4, 4), (64, 64), 8)
    decoder = MaskDecoder(
        transformer_dim=32,
        transformer=TwoWayTransformer(depth=2, embedding_dim=32, num_heads=2, mlp_dim=64),
        num_multimask_outputs=3, iou_head_depth=2, iou_head_hidden_dim=16,
    )  # fmt: skip
    models = torch.nn.ModuleList([prompts, decoder]).eval()

    @compile
    def masks(image: torch.Tensor, points: torch.Tensor, labels: torch.Tensor) -> Any:
        sparse, dense = prompts(points=(points, labels), boxes=None, masks=None)
        return decoder(
            image_embeddings=image, image_pe=prompts.get_dense_pe(), multimask_output=True,
            sparse_prompt_embeddings=sparse, dense_prompt_embeddings=dense,
        )  # fmt: skip

    @torch.no_grad()
    def step() -> Any:
        return masks(torch.randn(1, 32, 4, 4), torch.rand(1, 2, 2) * 64, torch.tensor([[1, 0]]))

    return Program(step, models)


@workload("pytorchcv")
def pytorchcv_train(compile: Compile) -> Program:
    from pytorchcv.model_provider import get_model

    return classifier(get_model("resnet20_cifar10"), compile, 32)


@workload("dynamic-network-architectures")
def nnunet_architecture(compile: Compile) -> Program:
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    model = PlainConvUNet(
        input_channels=1, n_stages=3, features_per_stage=(4, 8, 16), conv_op=torch.nn.Conv2d,
        kernel_sizes=3, strides=(1, 2, 2), n_conv_per_stage=1, num_classes=2,
        n_conv_per_stage_decoder=1, deep_supervision=True, norm_op=torch.nn.InstanceNorm2d,
        nonlin=torch.nn.LeakyReLU,
    )  # fmt: skip
    compiled = compile(model)

    def step() -> Any:
        model.zero_grad()
        out = compiled(torch.randn(1, 1, 32, 32))
        sum(o.square().mean() for o in out).backward()
        return out

    return Program(step, model)


@workload("torchvision")
def torchvision_transforms(compile: Compile) -> Program:
    from torchvision.transforms import v2

    pipeline = v2.Compose([
        v2.RandomResizedCrop(24, antialias=True), v2.RandomHorizontalFlip(), v2.ColorJitter(0.2),
        v2.Normalize([0.5] * 3, [0.2] * 3),
    ])  # fmt: skip
    compiled = compile(pipeline)
    return Program(lambda: compiled(torch.rand(2, 3, 32, 32)))
