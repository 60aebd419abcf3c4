"""Contexts that change how distributed tensors answer operators: within, without, in turn."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.two_ranks import two_ranks

CLASSES = 6


def _losses():
    """Name, program of scores and labels, sizes of the scores."""
    weight = torch.arange(1.0, CLASSES + 1)
    found = {}
    for reduction in ("mean", "sum", "none"):
        given = {"reduction": reduction, "ignore_index": 2}
        for name, sizes in {"rows": (4, CLASSES), "pictures": (2, CLASSES, 3, 2)}.items():
            found[f"{name}, {reduction}"] = (
                (lambda x, y, g=given: F.cross_entropy(x, y, **g)),
                sizes,
            )
    found["one"] = F.cross_entropy, (CLASSES,)
    found["weighted"] = (lambda x, y: F.cross_entropy(x, y, weight)), (4, CLASSES)
    found["scaled"] = (lambda x, y: F.cross_entropy(x.sin() * 2, y).full_tensor() * 3), (4, CLASSES)
    return found


def _plain(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def _step(run, x, y):
    x = x.detach().requires_grad_()
    out = run(x, y)
    _plain(out).square().sum().backward()
    return str(getattr(out, "placements", "")), _plain(out.detach()), _plain(x.grad)


def _parallel_losses(rank):
    mesh, found = init_device_mesh("cpu", (2,)), {}
    for name, (program, sizes) in _losses().items():
        made = torch.Generator().manual_seed(0)
        whole = torch.randn(sizes, generator=made)
        dim = 1 if len(sizes) > 1 else 0
        x = distribute_tensor(whole, mesh, [Shard(dim)])
        y = torch.randint(0, CLASSES, [*sizes[:dim], *sizes[dim + 1 :]], generator=made)
        flambeau.reset()
        compiled = flambeau.compile(program, backend="aot_eager")
        with loss_parallel():
            wanted = _step(program, x, y)
            given = [_step(compiled, x, y) for _ in range(2)]
        report = flambeau.report(compiled)
        said = [*report.breaks, *report.fallbacks, *report.faults]
        found[name] = wanted, given, len(report.records), str(said)
    return found


def test_losses_over_classes_that_are_spread_are_one_graph(tmp_path):
    for found in two_ranks(_parallel_losses, tmp_path):
        for name, (wanted, given, graphs, said) in found.items():
            assert (graphs, said) == (1, "[]"), name
            for each in given:
                assert each[0] == wanted[0], name
                torch.testing.assert_close(each[1:], wanted[1:], rtol=0, atol=0, msg=name)


def _in_turn(rank):
    """The same call within and without: what eager refuses without is refused then too."""
    mesh = init_device_mesh("cpu", (2,))
    rows = distribute_tensor(torch.arange(24.0).view(4, 6), mesh, [Shard(1)])
    programs = {
        "loss": (F.cross_entropy, loss_parallel, [rows, torch.arange(4)]),
        "copies": (
            lambda x, y: (x + y.sin()).sin().redistribute(placements=[Replicate()]),
            implicit_replication,
            [rows, torch.arange(6.0)],
        ),
    }
    found = {}
    for name, (program, context, args) in programs.items():
        flambeau.reset()
        compiled = flambeau.compile(program, backend="aot_eager")
        for run in (program, compiled):
            said = []
            for within in (True, False, True):
                try:
                    if within:
                        with context():
                            said.append(_plain(run(*args)))
                    else:
                        said.append(_plain(run(*args)))
                except RuntimeError as error:
                    said.append(str(error).partition("\n")[0])
            found.setdefault(name, []).append(said)
    return found


def test_a_context_of_dispatch_is_guarded(tmp_path):
    for found in two_ranks(_in_turn, tmp_path):
        for name, (wanted, given) in found.items():
            assert [type(each) for each in given] == [type(each) for each in wanted], (name, given)
            for one, other in zip(given, wanted, strict=True):
                if isinstance(one, str):
                    assert one == other, name
                else:
                    torch.testing.assert_close(one, other, rtol=0, atol=0, msg=name)
