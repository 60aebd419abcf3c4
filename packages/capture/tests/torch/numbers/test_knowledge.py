"""Data that capture knows: constants, small buffers, small integer inputs; and what it must not
know: what was written to, random numbers, what varies."""

import pytest
import torch
import torch.nn.functional as F
from flambeau_capture import allow_in_graph, export
from flambeau_capture.api import compiler_of
from flambeau_capture.breaks import Unsupported
from torch import nn


def grid(*rows):
    return torch.tensor(rows or [(1, 4, 4), (2, 2, 2)])


def patches(x, sizes):
    """Places of patches, as encoders of images of several sizes have them."""
    places = []
    for t, h, w in sizes.tolist():
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        places.append(torch.stack([rows.flatten(), columns.flatten()], -1).repeat(t, 1))
    counts = sizes[:, 0] * sizes[:, 1] * sizes[:, 2]
    starts = torch.repeat_interleave(F.pad(counts.cumsum(0)[:-1], (1, 0)), counts)
    lengths = torch.repeat_interleave(sizes[:, 1] * sizes[:, 2], sizes[:, 0])
    within = torch.arange(counts.sum()) - starts
    parts = x[: counts.sum()].split(counts.tolist())
    return torch.cat(places), within, lengths.cumsum(0), [part.sum() for part in parts]


def test_sizes_in_a_small_input_are_known(agree):
    agree(patches, torch.randn(24), grid())


def test_values_of_sizes_are_data_and_their_number_is_a_size(capture, backend, same):
    fn = capture(patches)
    rows = [grid(), grid(), grid((1, 2, 4), (4, 2, 2)), grid((3, 2, 4)), grid()]
    for sizes in rows:
        x = torch.randn(24)
        same(fn(x, sizes), patches(x, sizes))
    records = compiler_of(fn).records
    assert not records.breaks and len(backend) == 2
    assert not any("TENSOR_VALUES" in str(guards) for guards in records.guards)


def test_values_are_guarded_with_both_values_told(capture, backend):
    fn = capture(lambda x, n: x * len(range(n.item())))
    x = torch.ones(2)
    assert fn(x, torch.tensor(3)).tolist() == [3.0, 3.0]
    assert fn(x, torch.tensor(3)).tolist() == [3.0, 3.0] and len(backend) == 1
    assert fn(x, torch.tensor(4)).tolist() == [4.0, 4.0]
    (told,) = [str(record) for record in compiler_of(fn).records.recompiles]
    assert "TENSOR_VALUES" in told and "a tensor of 3" in told and "a tensor of 4" in told


class Padded(nn.Module):
    """A convolution that pads by what its buffers say."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 2, 3, 2)
        self.register_buffer("stride", torch.tensor(2))
        self.register_buffer("kernel", torch.tensor(3))

    def forward(self, x):
        frames = torch.ceil((x.shape[-1] - self.kernel) / self.stride + 1).to(torch.int64) - 1
        extra = frames * self.stride + self.kernel - x.shape[-1]
        return self.conv(F.pad(x, (0, extra)))


def test_buffers_are_known_until_they_change(capture, backend, agree, same):
    agree(Padded(), torch.randn(1, 2, 8))
    backend.clear()
    module = Padded()
    fn, x = capture(module), torch.randn(1, 2, 8)
    same(fn(x), module(x))
    module.kernel.add_(2)
    same(fn(x), module(x))
    module.kernel.sub_(2)
    same(fn(x), module(x))


def test_constants_are_known_whatever_their_size(agree):
    def run(x):
        mask = torch.ones(x.shape[:2], dtype=torch.bool)
        mask[:, 1:] = mask[:, 1:]
        lengths = torch.full((2,), 3)
        ids = torch.zeros(x.shape[:2], dtype=torch.long)
        wanted = torch.arange(6).reshape(2, 3) % 2 == 0
        ids[wanted] = torch.arange(6).reshape(2, 3)[wanted]
        if (lengths > 2).all() and not (lengths > 5).any():
            x = x * 2
        return x[wanted], ids, wanted.nonzero(), lengths.unique(), x.new_zeros(int(lengths.max()))

    agree(run, torch.randn(2, 3, 4, requires_grad=True))


def test_writes_by_masks_that_are_known_are_writes_at_places(capture, backend, same):
    def run(x, m):
        kept = torch.zeros_like(x)
        known = torch.arange(3) != 1
        kept[:, known] = x[:, known]
        kept[m] = x.amax(0)
        return kept

    fn, x = capture(run), torch.randn(2, 3)
    for m in (torch.tensor([True, False]), torch.tensor([False, True])):
        same(fn(x, m), run(x, m))
    assert len(backend) == 1  # what another mask may say is not assumed where nobody asks
    masks = [a for n in backend.graphs[0].graph.nodes for a in n.all_input_nodes
             if a.meta["val"].dtype == torch.bool]  # fmt: skip
    assert {node.op for node in masks} <= {"placeholder"}


def test_an_answer_is_a_new_tensor_each_time(agree):
    def run(x):
        places = (torch.arange(4) > 1).nonzero()
        places += 1
        return places, x + places.sum()

    agree(run, torch.randn(2), calls=3)


def test_lists_are_subscripted_and_loops_are_run_by_what_is_known(agree):
    def run(x, n):
        layers = [torch.sin, torch.cos, torch.tanh]
        for _ in range(int(n[0])):
            x = layers[n[1]](x)
        return x, float(n[0]), bool(n[1]), n.tolist()

    agree(run, torch.randn(3), torch.tensor([2, 1]))


def test_what_was_written_to_is_not_known(agree):
    def run(x, n):
        n.add_(1)
        return x * n.item()

    def through_a_view(x, n):
        n[0] += 1
        return x.repeat(n[0])

    def later(x, n):
        double = n * 2
        n.zero_()
        return x.repeat(double[0]), n

    for program in (run, through_a_view, later):
        agree(program, torch.randn(2), torch.tensor([3]), graphs=None)


def test_what_was_written_to_in_inference_mode_is_not_known(capture):
    def run(x):
        n = torch.ones(3).long()
        n.add_(1)
        return x * len(range(n.sum().item()))

    def through_a_view(x):
        n = torch.ones(3).long()
        rest = n[1:].view(2)
        rest += 1
        return x * len(range(n.sum().item()))

    def of_an_input(x):
        n = torch.zeros(2, dtype=torch.long)
        n[0] = 4
        return x.repeat(len(range(n.max())))

    def read(x):
        n = torch.arange(3)
        rows = torch.nn.functional.embedding(n, x.expand(3, 3))
        return rows * len(range(n.sum().item()))

    for program, broken in ((run, 1), (through_a_view, 1), (of_an_input, 1), (read, 0)):
        with torch.inference_mode():
            fn, x = capture(program), torch.ones(3)
            assert torch.equal(fn(x), program(x)), program
        assert len(compiler_of(fn).records.breaks) == broken, program


def test_what_is_written_past_the_count_is_not_known(capture):
    def by_data(x):
        n = torch.ones(3).long()
        n.data.add_(1)
        return x * n.sum().item()

    def by_an_array(x):
        n = torch.ones(3).long()
        n.numpy()[1] = 5
        return x * n.sum().item()

    def by_an_operator(x):
        n = torch.ones(3).long()
        torch.ops.knowledge.bump(n[1:])
        return x * n.sum().item()

    with torch.library._scoped_library("knowledge", "DEF") as library:
        library.define("bump(Tensor(a!) x) -> ()")
        library.impl("bump", lambda x: _add_one(x), "CompositeExplicitAutograd")
        library._register_fake("bump", lambda x: None)
        for program in (by_data, by_an_array, by_an_operator):
            fn, x = capture(program), torch.ones(2)
            for _ in range(2):
                assert torch.equal(fn(x), program(x)), program


def _add_one(x):
    x.add_(1)


def test_a_function_of_the_programs_own_is_not_asked_by_its_name(capture):
    @allow_in_graph
    def max(x):
        return x + torch.randint(0, 9, ())

    fn = capture(lambda x: x * max(torch.ones(2).long()).sum().item())
    torch.manual_seed(0)
    found = {fn(torch.ones(1)).item() for _ in range(20)}
    assert len(found) > 1


def test_what_is_on_no_device_has_no_data(capture):
    def run(x):
        return x if (torch.ones(2, device="meta") > 0).all() else -x

    with pytest.raises(RuntimeError, match="meta"):
        capture(run)(torch.ones(2))


def test_memory_that_another_input_writes_to_is_not_known(capture):
    def run(x, whole, one):
        whole += 1
        return x * one.item()

    fn = capture(run)
    for _ in range(3):
        whole = torch.tensor([1, 2])
        assert fn(torch.ones(1), whole, whole[1]).item() == 3.0


def test_random_numbers_and_weights_are_not_known(capture):
    def run(x):
        return x * len(range(torch.randint(0, 5, (2,)).sum().item()))

    def weights(x):
        return x[: len(range((x.sum() > 0).long() + 1))]

    for program in (run, weights):
        fn, x = capture(program), torch.ones(3)
        for _ in range(3):
            torch.manual_seed(1)
            want = program(x)
            torch.manual_seed(1)
            assert torch.equal(fn(x), want)
        assert compiler_of(fn).records.breaks


def test_it_can_be_left_out_and_an_export_has_none_of_it(capture, backend):
    def run(x, n):
        return x * len(range(n.item()))

    fn = capture(run, small_values=False)
    assert fn(torch.ones(1), torch.tensor(2)).item() == 2.0
    assert compiler_of(fn).records.breaks
    with pytest.raises(Unsupported, match="FB0002"):
        export(run, torch.ones(1), torch.tensor(2))


def test_without_breaks_allowed_each_value_is_compiled(capture, backend):
    fn = capture(lambda x, n: x * len(range(n.item())), nopython=True)
    for n in (2, 3, 4, 2):
        assert fn(torch.ones(1), torch.tensor(n)).item() == n
    assert len(backend) == 3
