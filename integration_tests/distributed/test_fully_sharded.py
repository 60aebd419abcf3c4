"""FSDP2 with compiled blocks and models: eager's losses, its hooks where eager runs them."""

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.collective_programs import ResidualBlock
from integration_tests.distributed.two_ranks import ranks

WIDTH = 8
STEPS = 5
BACKEND = "aot_eager"
HOOKS = (
    "pre_forward", "post_forward", "pre_backward", "post_backward", "unshard", "wait_for_unshard",
    "reshard",
)  # fmt: skip


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(ResidualBlock(WIDTH, 2 * WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x.to(self.head.weight.dtype))


MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
OF_EACH = {
    "resharded": {},
    "kept": {"reshard_after_forward": False},
    "halves": {"reshard_after_forward": 2},
    "mixed": {"mp_policy": MIXED},
    "accumulated": {},
    "checkpointed": {},
}
"""What `fully_shard` is given."""

WAYS = {
    "resharded": ("before", "after", "in place", "forward", "whole"),
    "kept": ("whole",),
    "halves": ("before", "whole"),
    "mixed": ("before", "whole"),
    "accumulated": ("after", "whole"),
    "checkpointed": ("before", "whole"),
}
"""What is compiled: each block before or after it is sharded, in place, its forward; the model."""


def _replace(model, made):
    for name, layer in list(model.layers.named_children()):
        model.layers.register_module(name, made(layer))


def _built(kind, how, mesh):
    """A sharded model, what to call, and what is compiled."""
    model, compiled = Net(), []

    def compile_(target):
        compiled.append(flambeau.compile(target, backend=BACKEND))
        return compiled[-1]

    if kind == "checkpointed":
        _replace(model, checkpoint_wrapper)
    if how == "before":
        _replace(model, compile_)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **OF_EACH[kind])
    if how == "after":
        _replace(model, compile_)
    for layer in model.layers:
        if how == "forward":
            layer.forward = compile_(layer.forward)
        if how == "in place":
            layer.compile(backend=BACKEND)
            compiled.append(layer._compiled_call_impl)
    fully_shard(model, mesh=mesh, **OF_EACH[kind])
    return model, compile_(model) if how == "whole" else model, compiled


def _losses(model, run, kind, rank):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    made = torch.Generator().manual_seed(rank)
    pieces = 2 if kind == "accumulated" else 1
    for _ in range(STEPS):
        for piece in range(pieces):
            model.set_requires_gradient_sync(piece == pieces - 1)
            x = torch.randn(4, WIDTH, generator=made)
            y = torch.randint(0, 4, (4,), generator=made)
            loss = F.cross_entropy(run(x).float(), y)
            loss.backward()
            yield loss.item()
        optimizer.step()
        optimizer.zero_grad()


def _noted(hooks, name, own):
    def run(self, *args, **kwargs):
        hooks.append((name, self._module_fqn))
        return own(self, *args, **kwargs)

    return run


def _all(rank, world, kinds):
    mesh = init_device_mesh("cpu", (world,))
    hooks = []
    for name in HOOKS:
        setattr(FSDPParamGroup, name, _noted(hooks, name, getattr(FSDPParamGroup, name)))
    found = {}
    flambeau.install()
    for kind in kinds:
        for how in ("eager", *WAYS[kind]):
            hooks.clear()
            model, run, compiled = _built(kind, how, mesh)
            assert all(isinstance(layer, FSDPModule) for layer in model.layers)
            losses = [*_losses(model, run, kind, rank)]
            reports = [flambeau.report(each) for each in compiled]
            said = [(len(r.records), r.breaks, len(r.fallbacks), len(r.faults)) for r in reports]
            found[kind, how] = losses, list(hooks), said
    flambeau.uninstall()
    return found


def _two(rank):
    return _all(rank, 2, ("resharded", "kept"))


def _two_more(rank):
    return _all(rank, 2, ("mixed", "accumulated", "checkpointed"))


def _four(rank):
    return _all(rank, 4, ("halves",))


@pytest.mark.parametrize(
    ("program", "world"),
    [(_two, 2), (_two_more, 2), (_four, 4)],
    ids=["sharding", "training", "four"],
)
def test_fully_sharded_models_train_as_in_eager(program, world, tmp_path):
    """Nothing but FSDP's own hooks ends a graph: each block has one, and what is around them."""
    for found in ranks(program, tmp_path, world):
        for (kind, how), (losses, hooks, said) in found.items():
            where = f"{kind}, compiled {how}"
            wanted, also, _ = found[kind, "eager"]
            assert losses == wanted, where
            assert hooks == also, where
            for graphs, breaks, fallbacks, faults in said:
                assert (graphs, fallbacks, faults) == (3 if how == "whole" else 1, 0, 0), where
                around = how in ("whole", "in place")
                assert [each for each in breaks if "fully_shard" not in each] == [], where
                assert bool(breaks) is around, where
