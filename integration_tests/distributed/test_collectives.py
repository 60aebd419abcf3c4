"""Collectives in graphs: values, gradients, aliasing and counts of graphs, against eager."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import flambeau
from integration_tests.distributed import collective_programs as programs
from integration_tests.distributed.two_ranks import ranks, two_ranks


def _equal(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def _table(rank):
    """Each program compiled as one graph and called twice; how many rows were compared."""
    size = dist.get_world_size()
    pair = [rank - rank % 2, rank - rank % 2 + 1]
    groups = [dist.new_group([first, first + 1]) for first in range(0, size, 2)]
    group = groups[pair[0] // 2] if size > 2 else dist.group.WORLD
    compared, failures = 0, []
    for program, op, dtype, later, chosen in programs.table(group):
        reduction = getattr(dist.ReduceOp, op)
        flambeau.reset()
        compiled = flambeau.compile(program, fullgraph=True, backend="aot_eager")
        for call in range(2):
            x = programs.arguments(rank + size * call, dtype)
            y = x.clone()
            wanted = program(x, reduction, chosen, later)
            found = compiled(y, reduction, chosen, later)
            try:
                _equal((found, y), (wanted, x))
            except AssertionError as error:
                failures.append(f"{program.__name__} {op} {dtype} {later} {chosen}: {error}")
            compared += 1
    return compared, failures


@pytest.mark.parametrize("count", [2, 4])
def test_collectives_are_eagers(count, tmp_path):
    for compared, failures in ranks(_table, tmp_path, count):
        assert failures == []
        assert compared == 2 * len(programs.table(None))


def _modules(rank):
    """Losses and gradients of sharded modules, eager's and compiled."""
    size, found = dist.get_world_size(), {}
    for kind in programs.MODULES:
        both = []
        for compiled in (False, True):
            module = kind(rank, size)
            run = flambeau.compile(module, fullgraph=True) if compiled else module
            x = torch.randn(8, 16, generator=torch.Generator().manual_seed(rank // size))
            x.requires_grad_()
            outs = [run(x) for _ in range(2)]
            (outs[0].square().mean() + outs[1].sum()).backward()
            grads = [each.grad for each in (x, *module.parameters()) if each.grad is not None]
            both.append((outs, grads))
            if compiled:
                report = flambeau.report(run)
                both.append((len(report.breaks), len(report.fallbacks), report.kernels > 0))
        found[kind.__name__] = both
    return found


@pytest.mark.parametrize("count", [2, 4])
def test_sharded_modules_train_as_in_eager(count, tmp_path):
    for found in ranks(_modules, tmp_path, count):
        for eager, compiled, report in found.values():
            torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)
            assert report == (0, 0, True)


def _inductor(rank):
    """What kernels, the order of steps and reuse of memory may get wrong."""

    def overlapping(x, w):
        y, z = x * 2, x + 1
        first = dist.all_reduce(y, async_op=True)
        gathered = x.new_empty(dist.get_world_size() * x.shape[0], x.shape[1])
        second = dist.all_gather_into_tensor(gathered, z, async_op=True)
        for _ in range(3):  # buffers of the size of those that are on their way
            w = (w @ w.T).softmax(-1) @ w
        z2 = w.sin() + 1
        first.wait()
        second.wait()
        return y + z2, gathered.view(-1, *x.shape).sum(0) * w

    def unread(x):
        y = x * 2
        dist.all_reduce(y)
        dist.broadcast(x, 0)  # of no interest but for what it does
        return x.sin()

    def twice(x):
        functional.all_reduce(x, "sum", dist.group.WORLD)  # its result is not used
        one = functional.all_reduce(x, "sum", dist.group.WORLD)
        return one + functional.all_reduce(x, "sum", dist.group.WORLD)

    def transposed(x):
        return functional.all_reduce(x.T, "sum", dist.group.WORLD) * 2

    found = []
    for program, count in ((overlapping, 2), (unread, 1), (twice, 1), (transposed, 1)):
        compiled = flambeau.compile(program, fullgraph=True)
        for call in range(3):
            xs = [torch.randn(64, 64, generator=torch.Generator().manual_seed(5 * call + k))
                  * (rank + 1) for k in range(count)]  # fmt: skip
            ys = [x.clone() for x in xs]
            wanted, given = program(*xs), compiled(*ys)
            found.append((program.__name__, (wanted, xs), (given, ys)))
        again = [compiled(*[x.clone() for x in ys]) for _ in range(2)]
        _equal(again[0], again[1])
    return found


def test_kernels_and_memory_around_collectives(tmp_path):
    for found in two_ranks(_inductor, tmp_path):
        for name, wanted, given in found:
            torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-6, msg=name)


def _by_hand(rank):
    """Data-parallel training by hand, with compiled averages of gradients."""
    both = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        forward, average = module, programs.average
        if compiled:
            forward = flambeau.compile(module, fullgraph=True)
            average = flambeau.compile(average, fullgraph=True)
        losses = []
        for number in range(3):
            x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * number + rank))
            module.zero_grad()
            loss = programs.step(forward, x)
            norm = average([each.grad for each in module.parameters()])
            with torch.no_grad():
                for each in module.parameters():
                    each -= 0.1 * each.grad
            losses.append((loss.item(), norm.item()))
        both.append((losses, [each.detach() for each in module.parameters()]))
    return both


def test_gradients_averaged_by_hand(tmp_path):
    for eager, compiled in two_ranks(_by_hand, tmp_path):
        torch.testing.assert_close(compiled, eager, rtol=1e-5, atol=1e-6)


def _groups(rank):
    """Groups by every name, queries of them, and a second group in the place of the first."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    own = [dist.new_group([0, 1]) for _ in range(2)]

    def by_name(x):
        named = functional.all_reduce(x, "sum", mesh.get_group().group_name)
        meshed = functional.all_reduce(x, "sum", (mesh, 0))
        whole = functional.all_reduce(x, "sum", mesh)
        moved = functional.permute_tensor(x.flatten(), [1, 0], dist.group.WORLD)
        return named + meshed * 2 + whole * 4 + moved.view(x.shape)

    def queries(x, group):
        y = x + dist.get_rank(group) + 2 * dist.get_world_size(group)
        y = y + mesh.size() + mesh.get_local_rank() + group.rank() + 3 * group.size()
        dist.all_reduce(y, group=group)
        return y * dist.get_global_rank(group, 1)

    x = torch.arange(6.0).view(2, 3) + rank
    found = [(by_name(x), flambeau.compile(by_name, fullgraph=True, backend="aot_eager")(x))]
    compiled = flambeau.compile(queries, fullgraph=True, backend="aot_eager")
    found += [(queries(x, group), compiled(x, group)) for group in own]
    return found


def test_groups_by_every_name(tmp_path):
    for found in two_ranks(_groups, tmp_path):
        for wanted, given in found:
            _equal(given, wanted)


REFUSED = {
    "barrier": lambda x: dist.barrier(),
    "object": lambda x: dist.broadcast_object_list([1], 0),
    "premul": lambda x: dist.all_reduce(x, dist.ReduceOp.PREMUL_SUM),
    "not contiguous": lambda x: dist.all_reduce(x.T),
    "complex": lambda x: dist.all_reduce(x.to(torch.complex64)),
    "sizes": lambda x: dist.all_gather_into_tensor(x.new_empty(3), x),
    "dtypes": lambda x: dist.all_gather_into_tensor(torch.empty(16, 2, dtype=torch.int64), x),
    "no tensor": lambda x: dist.all_reduce(3),
    "argument": lambda x: dist.all_reduce(x, nothing=1),
    "message to itself": lambda x: dist.send(x, dist.get_rank()),
    "message of no tensor": lambda x: dist.isend(3, 1 - dist.get_rank()),
    "no messages": lambda x: dist.batch_isend_irecv([]),
    "no message": lambda x: dist.batch_isend_irecv([x]),
    "message of what": lambda x: dist.P2POp(dist.all_reduce, x, 0),
}


def _refused(rank):
    """What a graph cannot hold is eager's, errors included; those that communicate do so alike."""
    found = {}
    for name, call in REFUSED.items():
        said = []
        for compiled in (False, True):

            def program(x, call=call):
                call(x)
                return x + 1

            flambeau.reset()
            run = flambeau.compile(program, backend="eager") if compiled else program
            try:
                said.append(run(torch.ones(8, 2)))
            except Exception as error:
                said.append((type(error).__name__, str(error).splitlines()[:1]))
        found[name] = said

    def writes_what_requires_grad(x):
        y = x.exp()
        dist.all_reduce(y)
        return y

    both = []
    for compiled in (False, True):
        x = torch.ones(3, requires_grad=True)
        run = writes_what_requires_grad
        run = flambeau.compile(run, backend="aot_eager") if compiled else run
        out = run(x)
        out.sum().backward()
        both.append((out.detach(), x.grad))
    found["requires grad"] = both
    return found


def test_what_no_graph_holds_is_eagers(tmp_path):
    for found in two_ranks(_refused, tmp_path):
        for name, (wanted, given) in found.items():
            if isinstance(wanted, torch.Tensor | list) or torch.is_tensor(wanted[0]):
                torch.testing.assert_close(given, wanted, rtol=0, atol=0, msg=name)
            else:
                assert given == wanted, name


def _different(rank):
    """Ranks with other collectives in one place, after one that they share and a break on one."""

    def first(x):
        y = x * 2
        dist.all_reduce(y)
        if rank == 0:
            str(y.sum().item())
        whole = torch.empty(2 * x.shape[0], x.shape[1])
        dist.all_gather_into_tensor(whole, y)
        return whole

    def other(x):
        y = x * 2
        if rank == 0:
            dist.all_reduce(y)
        else:
            dist.broadcast(y, 0)
        return y

    compiled = [
        flambeau.compile(each, backend="aot_eager") for each in (first, first, first, other)
    ]
    outs = [run(torch.ones(n, 2)).sum().item() for run, n in zip(compiled, (2, 2, 3))]
    try:
        compiled[-1](torch.ones(2))
    except flambeau.distributed.CollectivesDiffer as error:
        return outs, str(error)
    return outs, None


def test_ranks_that_start_different_collectives_raise(tmp_path):
    for outs, said in two_ranks(_different, tmp_path):
        assert outs == [32.0, 32.0, 48.0]
        assert "dist.all_reduce(y)" in said
        assert "dist.broadcast(y, 0)" in said
