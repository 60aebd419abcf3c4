"""Graphs, molecules, geometry, physics and differential equations on grids."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from integration_tests.libraries.workload import Compile, Program, workload


def graph(nodes: int = 12, edges: int = 40) -> torch.Tensor:
    return torch.randint(0, nodes, (2, edges))


def node_classifier(model: torch.nn.Module, compile: Compile, *more: Any) -> Program:
    """A training step on a drawn graph."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    compiled = compile(model)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        out = compiled(torch.randn(12, 8), graph(), *more)
        loss = F.cross_entropy(out, torch.randint(0, 3, (12,)))
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("torch_geometric")
def pyg_gcn_train(compile: Compile) -> Program:
    from torch_geometric.nn import GCN

    return node_classifier(GCN(8, 16, 2, 3, dropout=0.2), compile)


@workload("torch_geometric")
def pyg_gat_train(compile: Compile) -> Program:
    from torch_geometric.nn import GAT

    return node_classifier(GAT(8, 16, 2, 3, v2=True, heads=2), compile)


@workload("torch_geometric")
def pyg_gin_pooled(compile: Compile) -> Program:
    from torch_geometric.nn import GIN, global_mean_pool

    net, head = GIN(8, 16, 2), torch.nn.Linear(16, 2)

    @compile
    def forward(x: torch.Tensor, edges: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        return head(global_mean_pool(net(x, edges), batch, size=3))

    def step() -> torch.Tensor:
        out = forward(torch.randn(12, 8), graph(), torch.arange(12) // 4)
        out.square().mean().backward()
        return out

    return Program(step, net, head)


@workload("torch_geometric")
def pyg_sage_train(compile: Compile) -> Program:
    from torch_geometric.nn import GraphSAGE

    return node_classifier(GraphSAGE(8, 16, 2, 3, norm="layer_norm", jk="cat"), compile)


@workload("e3nn")
def e3nn_tensor_product(compile: Compile) -> Program:
    from e3nn import o3

    product = o3.FullyConnectedTensorProduct("4x0e + 2x1o", "1x0e + 1x1o", "4x0e + 2x1o")
    harmonics = o3.SphericalHarmonics([0, 1], normalize=True)
    forward = compile(lambda x, v: product(x, harmonics(v)))

    def step() -> torch.Tensor:
        product.zero_grad()
        out = forward(torch.randn(5, 10), torch.randn(5, 3))
        out.square().mean().backward()
        return out

    return Program(step, product)


@workload("egnn-pytorch")
def egnn_layers(compile: Compile) -> Program:
    from egnn_pytorch import EGNN

    first, second = EGNN(dim=16, num_nearest_neighbors=4), EGNN(dim=16)

    @compile
    def forward(features: torch.Tensor, places: torch.Tensor) -> Any:
        return second(*first(features, places))

    def step() -> Any:
        features, places = forward(torch.randn(1, 10, 16), torch.randn(1, 10, 3))
        (features.square().mean() + places.square().mean()).backward()
        return features, places

    return Program(step, first, second)


@workload("se3-transformer-pytorch")
def se3_transformer(compile: Compile) -> Program:
    from se3_transformer_pytorch import SE3Transformer

    model = SE3Transformer(dim=8, heads=2, depth=1, dim_head=4, num_degrees=2, num_neighbors=3,
                           valid_radius=10)  # fmt: skip
    compiled = compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        mask = torch.ones(1, 6).bool()
        out = compiled(torch.randn(1, 6, 8), torch.randn(1, 6, 3), mask, return_type=0)
        out.square().mean().backward()
        return out

    return Program(step, model)


@workload("roma")
def roma_rotations(compile: Compile) -> Program:
    import roma

    @compile
    def convert(q: torch.Tensor, m: torch.Tensor) -> Any:
        matrix = roma.unitquat_to_rotmat(q / q.norm(dim=-1, keepdim=True))
        special = roma.special_procrustes(m)
        return matrix @ special, roma.rotmat_to_rotvec(matrix), roma.rotmat_to_unitquat(special)

    def step() -> Any:
        q = torch.randn(5, 4, requires_grad=True)
        out = convert(q, torch.eye(3) + 0.1 * torch.randn(5, 3, 3))
        sum(o.sum() for o in out).backward()
        return out, q.grad

    return Program(step)


@workload("pypose")
def pypose_transforms(compile: Compile) -> Program:
    import pypose

    @compile
    def move(twist: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        return pypose.se3(twist).Exp().Act(points)

    def step() -> Any:
        twist = torch.randn(5, 6, requires_grad=True)
        out = move(twist, torch.randn(5, 3))
        out.sum().backward()
        return out, twist.grad

    return Program(step)


@workload("torchlie")
def torchlie_geometry(compile: Compile) -> Program:
    from torchlie.functional import SE3, SO3

    @compile
    def compose(a: torch.Tensor, b: torch.Tensor) -> Any:
        first, second = SO3.exp(a), SE3.exp(b)
        return SO3.log(first), SE3.inv(second), SO3.compose(first, first)

    def step() -> Any:
        a, b = torch.randn(4, 3, requires_grad=True), torch.randn(4, 6, requires_grad=True)
        out = compose(a, b)
        sum(o.sum() for o in out).backward()
        return out, a.grad, b.grad

    return Program(step)


@workload("neuraloperator")
def neuralop_fno_train(compile: Compile) -> Program:
    from neuralop.losses import LpLoss
    from neuralop.models import FNO

    model = FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
    loss_of = LpLoss(d=2, p=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = compile(model)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(compiled(torch.randn(2, 1, 16, 16)), torch.randn(2, 1, 16, 16))
        loss.backward()
        optimizer.step()
        return loss

    return Program(step, model, optimizer)


@workload("deepxde")
def deepxde_poisson(compile: Compile) -> Program:
    import os

    os.environ["DDE_BACKEND"] = "pytorch"
    import deepxde

    net = deepxde.nn.FNN([1, 16, 16, 1], "tanh", "Glorot normal")

    @compile
    def residual(x: torch.Tensor) -> torch.Tensor:
        y = net(x)
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return (second + torch.sin(x)).square().mean()

    def step() -> torch.Tensor:
        net.zero_grad()
        loss = residual(torch.rand(16, 1, requires_grad=True))
        loss.backward()
        return loss

    return Program(step, net)


@workload("torchphysics")
def torchphysics_fcn(compile: Compile) -> Program:
    import torchphysics

    x, u = torchphysics.spaces.R2("x"), torchphysics.spaces.R1("u")
    model = torchphysics.models.FCN(x, u, hidden=(16, 16))
    points_of = torchphysics.spaces.Points

    @compile
    def residual(x_: torch.Tensor) -> torch.Tensor:
        out = model(points_of(x_, x)).as_tensor
        return (torchphysics.utils.laplacian(out, x_) + 1).square().mean()

    def step() -> torch.Tensor:
        model.zero_grad()
        loss = residual(torch.rand(8, 2, requires_grad=True))
        loss.backward()
        return loss

    return Program(step, model)


@workload("pykan")
def pykan_train(compile: Compile) -> Program:
    from kan import KAN

    model = KAN(width=[2, 3, 1], grid=3, k=3, seed=0, auto_save=False, symbolic_enabled=False,
                save_act=False)  # fmt: skip
    compiled = compile(model)

    def step() -> torch.Tensor:
        model.zero_grad()
        out = compiled(torch.rand(8, 2))
        out.square().mean().backward()
        return out

    return Program(step, model)


@workload("einops")
def einops_layers(compile: Compile) -> Program:
    from einops import einsum, pack, rearrange, reduce, repeat, unpack
    from einops.layers.torch import EinMix, Rearrange

    mix = EinMix("b (h p) (w q) c -> b h w d", weight_shape="p q c d", bias_shape="d", p=4, q=4,
                 c=3, d=8)  # fmt: skip
    to_tokens = Rearrange("b h w d -> b (h w) d")

    @compile
    def forward(x: torch.Tensor) -> Any:
        tokens = to_tokens(mix(x))
        packed, shapes = pack([tokens, repeat(tokens.mean(1), "b d -> b 2 d")], "b * d")
        heads = rearrange(packed, "b n (h d) -> b h n d", h=2)
        scores = einsum(heads, heads, "b h i d, b h j d -> b h i j")
        return reduce(scores, "b h i j -> b h", "max"), unpack(packed, shapes, "b * d")

    def step() -> Any:
        mix.zero_grad()
        scores, parts = forward(torch.rand(2, 16, 16, 3))
        (scores.sum() + parts[0].sum()).backward()
        return scores, parts

    return Program(step, mix)


@workload("einx")
def einx_attention(compile: Compile) -> Program:
    import einx

    @compile
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = einx.dot("b q (h c), b k (h c) -> b q k h", q, k, h=2)
        return einx.dot("b q k h, b k (h c) -> b q (h c)", weights.softmax(2), v)

    def step() -> Any:
        q, k, v = (torch.randn(2, 6, 8, requires_grad=True) for _ in range(3))
        out = attend(q, k, v)
        out.sum().backward()
        return out, q.grad

    return Program(step)
