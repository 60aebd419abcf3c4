"""Strides of results that are not those that were traced: a compiler's are mended at every call, a
kernel's of torch are eager's."""

import flambeau_aot as aot
import pytest
import torch


def turned(value):
    """The same values in the opposite order of dimensions in memory, with a gap."""
    made = value.new_empty([*reversed(value.shape), 2])[..., 0].permute(
        *reversed(range(value.dim()))
    )
    return made.copy_(value)


def laying_out_otherwise(gm, inputs, info):
    call = aot.boxed(gm)
    return lambda args: [turned(x) if x.is_floating_point() else x for x in call(args)]


FUNCTIONS = {
    "one": lambda x: x.sin(),
    "several": lambda x: (x.sin(), x * 2, (x > 0)),
    "turned": lambda x: x.t() + 1,
    "with views": lambda x: (lambda y: (y, y[0], y.t()))(x.exp()),
    "written": lambda x: x.mul_(2) + 1,
}


@pytest.mark.parametrize(
    ("name", "grad"), [(name, grad) for name in FUNCTIONS for grad in {False, name != "written"}]
)
def test_of_a_compilers_results(name, grad) -> None:
    fn = FUNCTIONS[name]
    compiled = aot.aot_function(fn, laying_out_otherwise)
    for _ in range(3):
        both = []
        for run in (fn, compiled):
            torch.manual_seed(0)
            x = torch.randn(3, 4, requires_grad=grad)
            found = torch.utils._pytree.tree_leaves(run(x))
            if grad:
                sum(y.sum() for y in found if y.requires_grad).backward()
                found.append(x.grad)
            both.append(found)
        for expected, given in zip(*both, strict=True):
            assert given.stride() == expected.stride()
            torch.testing.assert_close(given, expected)


def test_of_a_kernel_that_its_description_does_not_tell() -> None:
    with torch.library._scoped_library("flambeau_strides", "FRAGMENT") as library:
        library.define("turned(Tensor x) -> Tensor")
        library.impl("turned", turned, "CPU")
        torch.library.register_fake("flambeau_strides::turned", torch.empty_like, lib=library)

        def fn(x):
            y = torch.ops.flambeau_strides.turned(x)
            return y, y + 1, torch.ops.flambeau_strides.turned(x * 2).reshape(-1)

        x = torch.randn(3, 4)
        compiled = aot.aot_function(fn, aot.run_as_is)
        for _ in range(2):
            for expected, given in zip(fn(x), compiled(x), strict=True):
                torch.testing.assert_close(given, expected)
            assert compiled(x)[0].stride() == fn(x)[0].stride()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_of_unpooling(layout) -> None:
    x = torch.randn(1, 2, 4, 4).to(memory_format=layout)
    y, at = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    fn = lambda y, at: torch.nn.functional.max_unpool2d(y, at, 2)  # noqa: E731
    given = aot.aot_function(fn, aot.run_as_is)(y, at)
    assert given.stride() == fn(y, at).stride()
    assert torch.equal(given, fn(y, at))
