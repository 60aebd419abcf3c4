"""Distributed tensors in graphs: operators, placements, what leads to them and back, gradients."""

import itertools

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.collective_programs import ResidualBlock
from integration_tests.distributed.two_ranks import ranks

WIDTH = 8


def _whole(value):
    if not isinstance(value, DTensor):
        return None if value is None else (type(value).__name__, value.detach().clone())
    return [str(value.placements), value.detach().full_tensor(), value.to_local().detach().clone()]


def _programs(mesh):
    """Name, program, arguments: each is one graph."""
    torch.manual_seed(0)
    plain = torch.randn(8, 6)
    rows = distribute_tensor(torch.randn(8, 6), mesh, [Shard(0)])
    columns = distribute_tensor(torch.randn(8, 6), mesh, [Shard(1)])
    copies = distribute_tensor(torch.randn(6, 4), mesh, [Replicate()])
    closed = [Replicate()]

    def asks(x):
        factor = len(x.placements) * x.device_mesh.size() + x.shape[0] + x.device_mesh.ndim
        first = x.placements[0]
        if first.is_shard(0) and first == Shard(0) and first != Shard(1):
            factor = factor + isinstance(first, Shard) * (first.dim + 3)
        return x * factor if x.placements != (Replicate(),) else x

    return {
        "pointwise": (lambda x: x * 2 + x.sin(), rows),
        "product": (lambda x, y: x @ y, rows, copies),
        "product of shards": (lambda x, y: (x @ y).redistribute(None, [Shard(0)]), columns, copies),
        "local": (lambda x, y: (x @ y).to_local().relu(), rows, copies),
        "full": (lambda x: (x * 2).full_tensor() + 1, columns),
        "to copies": (lambda x: x.redistribute(placements=[Replicate()]) + 1, rows),
        "to columns": (lambda x: x.redistribute(x.device_mesh, [Shard(-1)]) * 2, rows),
        "a list that is there": (lambda x: x.redistribute(placements=closed) * 2, columns),
        "from rows": (lambda x: (DTensor.from_local(x, mesh, [Shard(0)]) * 2).sin(), plain),
        "from parts": (lambda x: DTensor.from_local(x, mesh, (Partial(),)).full_tensor(), plain),
        "from local": (lambda x: DTensor.from_local(x.exp(), mesh).to_local() + 1, plain),
        "questions": (asks, rows),
        "sizes": (lambda x: x.view(x.shape[0], 3, 2).sum(-1), rows),
        "writes": (lambda x: x.mul(2).add_(x).sin_(), rows),
        "partial": (lambda x: x.sum(0), rows),
        "sum of all": (lambda x: x.sum().full_tensor(), rows),
        "several sums": (lambda x, y: x.sum(0).full_tensor() * y.sum().full_tensor(), rows, rows),
        "sum": (lambda x: x.sum(0).redistribute(placements=[Replicate()]), rows),
    }


def _step(run, args, grad):
    given = [x.detach().clone().requires_grad_(grad) for x in args]
    out = run(*given)
    found = [_whole(out)]
    if grad:
        weights = torch.arange(1.0, out.numel() + 1).view(out.shape)
        if isinstance(out, DTensor):
            (out.full_tensor() * weights).sum().backward()
        else:
            (out * weights).sum().backward()
        found += [_whole(x.grad) for x in given]
    return found


def _of_programs(rank, world=2):
    mesh = init_device_mesh("cpu", (world,))
    found = {}
    for name, (program, *args) in _programs(mesh).items():
        for grad in (False, True):
            flambeau.reset()
            compiled = flambeau.compile(program, backend="aot_eager")
            wanted = _step(program, args, grad)
            given = [_step(compiled, args, grad) for _ in range(2)]
            report = flambeau.report(compiled)
            said = len(report.records), len(report.breaks), report.fallbacks, report.faults
            found[name, grad] = wanted, given, tuple(map(str, said))
    return found


def _four(rank):
    return _of_programs(rank, 4)


@pytest.mark.parametrize(("program", "world"), [(_of_programs, 2), (_four, 4)], ids=["two", "four"])
def test_operators_and_changes_of_placement_are_one_graph(program, world, tmp_path):
    for found in ranks(program, tmp_path, world):
        for (name, grad), (wanted, given, said) in found.items():
            where = f"{name}, {'with' if grad else 'without'} gradients"
            assert said == ("1", "0", "()", "()"), (where, said)
            for once in given:
                assert repr(once) == repr(wanted), where
                for one, other in zip(once, wanted, strict=True):
                    torch.testing.assert_close(one[1], other[1], rtol=0, atol=0, msg=where)


def _other_placements(rank):
    """A graph is for one mesh and its placements: others are compiled anew, and rightly."""
    meshes = [init_device_mesh("cpu", (2,)), init_device_mesh("cpu", (1, 2))]
    compiled = flambeau.compile(lambda x: (x * 2).sum(-1).to_local(), backend="aot_eager")
    found = []
    for mesh in meshes:
        for placements in ([Shard(0)], [Replicate()], [Shard(1)]):
            given = [Replicate()] * (mesh.ndim - 1) + placements
            x = distribute_tensor(torch.arange(8.0).view(2, 4), mesh, given)
            found.append((compiled(x), (x * 2).sum(-1).to_local()))
    return found, flambeau.report(compiled).graphs


def test_other_placements_are_another_graph(tmp_path):
    for found, graphs in ranks(_other_placements, tmp_path, 2):
        assert graphs == len(found)
        for given, wanted in found:
            torch.testing.assert_close(given, wanted, rtol=0, atol=0)


def _spread(rank):
    """`distribute_tensor` in a graph: rows that do not divide, columns, copies, sources."""
    mesh = init_device_mesh("cpu", (2,))
    programs = {
        "rows": (lambda x: distribute_tensor(x, mesh, [Shard(0)]) * 2, 1),
        "columns": (lambda x: distribute_tensor(x.sin(), mesh, [Shard(-1)]), 1),
        "from another": (lambda x: distribute_tensor(x, mesh, [Shard(0)], src_data_rank=1), 1),
        "own rows": (lambda x: distribute_tensor(x, mesh, [Shard(0)], src_data_rank=None), 1),
        "copies": (lambda x: distribute_tensor(x, mesh), 1),
        "copies of a value": (lambda x: distribute_tensor(x.cos(), mesh, [Replicate()]) + 1, 1),
        "with a number": (lambda x: distribute_tensor(x, mesh, [Shard(0)]) + x.sum(), 1),
        "a new leaf": (
            lambda x: distribute_tensor(x.detach().requires_grad_(), mesh, [Shard(0)]).detach(),
            0,
        ),
    }
    found = {}
    for name, (program, graphs) in programs.items():
        flambeau.reset()
        compiled, both = flambeau.compile(program, backend="aot_eager"), []
        for run in (program, compiled):
            for _ in range(2):
                x = torch.arange(15.0).view(5, 3) * (rank + 1)
                out = run(x)
                local = out.to_local()
                shared = local.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
                both.append((str(out.placements), out.shape, out.stride(), shared, local, x))
        report = flambeau.report(compiled)
        said = (len(report.records), len(report.breaks)) == (1, 0) or not graphs
        found[name] = both, said and not report.fallbacks and not report.faults
    return found


def test_tensors_are_distributed_in_a_graph(tmp_path):
    for found in ranks(_spread, tmp_path, 2):
        for name, (both, right) in found.items():
            assert right, name
            for given in both[1:]:
                assert given[:4] == both[0][:4], name
                torch.testing.assert_close(given[4:], both[0][4:], rtol=0, atol=0, msg=name)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = ResidualBlock(WIDTH, 4 * WIDTH), ResidualBlock(WIDTH, 4 * WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


def _columns_and_rows(model, mesh):
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in (model.first, model.second):
        parallelize_module(block, mesh, plan)


def _sequences(model, mesh):
    split, whole = Shard(0), Replicate()
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "up": ColwiseParallel(input_layouts=split),
        "down": RowwiseParallel(output_layouts=split),
    }
    for block in (model.first, model.second):
        parallelize_module(block, mesh, plan)
    around = {
        "first": PrepareModuleInput(
            input_layouts=(whole,), desired_input_layouts=(split,), use_local_output=True
        ),
        "second": PrepareModuleOutput(
            output_layouts=split, desired_output_layouts=whole, use_local_output=True
        ),
    }
    parallelize_module(model, mesh, around)


PLANS = {"columns and rows": _columns_and_rows, "sequences": _sequences}


def _of_modules(rank):
    mesh = init_device_mesh("cpu", (2,))
    found = {}
    for name, plan in PLANS.items():
        for backend in (None, "aot_eager", "flambeau"):
            flambeau.reset()
            model = Net()
            plan(model, mesh)
            run = flambeau.compile(model, backend=backend) if backend else model
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            made = torch.Generator().manual_seed(7)
            losses = []
            for _ in range(4):
                x, y = torch.randn(8, WIDTH, generator=made), torch.arange(8) % 4
                optimizer.zero_grad()
                loss = F.cross_entropy(run(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            report = flambeau.report(run) if backend else None
            said = report and (len(report.records), report.breaks, report.fallbacks)
            found[name, backend] = losses, str(said)
    return found


def test_parallelized_modules_are_one_graph_and_train_as_in_eager(tmp_path):
    for found in ranks(_of_modules, tmp_path, 2):
        for (name, backend), (losses, said) in found.items():
            close = (
                {"rtol": 1e-5, "atol": 1e-6} if backend == "flambeau" else {"rtol": 0, "atol": 0}
            )
            torch.testing.assert_close(losses, found[name, None][0], **close)
            assert said == ("(1, (), ())" if backend else "None"), (name, backend)


OPTIMIZERS = {
    "SGD": {"momentum": 0.9}, "AdamW": {}, "Adam": {"amsgrad": True}, "Adagrad": {}, "RMSprop": {},
    "RAdam": {}, "NAdam": {}, "Adamax": {},
}  # fmt: skip


def _optimizers(rank):
    """Parameters after steps on shards, each rank's own and a number that counts the steps."""
    mesh, found = init_device_mesh("cpu", (2,)), {}
    for name, foreach in itertools.product(OPTIMIZERS, (False, True)):
        both = []
        for compiled in (False, True):
            made = torch.Generator().manual_seed(3)
            whole = [torch.randn(size, generator=made) for size in ((4, 2), (3,))]
            owned = [nn.Parameter(distribute_tensor(x, mesh, [Shard(0)])) for x in whole]
            kind = getattr(torch.optim, name)
            optimizer = kind(owned, lr=0.1, foreach=foreach, **OPTIMIZERS[name])
            step = optimizer.step
            if compiled:
                flambeau.reset()
                step = flambeau.compile(step, backend="aot_eager")
            for _ in range(3):
                for each, x in zip(owned, whole):
                    grad = torch.randn(x.shape, generator=made)
                    each.grad = distribute_tensor(grad, mesh, [Shard(0)])
                step()
            both.append([each.detach().to_local() for each in owned])
        report = flambeau.report(step)
        found[name, foreach] = both, (len(report.records), report.breaks, report.fallbacks)
    return found


def test_steps_of_optimizers_are_compiled_on_shards(tmp_path):
    for found in ranks(_optimizers, tmp_path, 2):
        for case, ((eager, compiled), (graphs, breaks, fallbacks)) in found.items():
            torch.testing.assert_close(compiled, eager, msg=str(case))
            assert graphs and breaks == () and fallbacks == (), case
