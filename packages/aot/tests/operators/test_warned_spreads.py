"""Spreads of too few elements, of which eager warns at every call: refused where it does."""

import warnings

import flambeau_aot as aot
import pytest
import torch

SHAPES = ((3, 1), (1, 1), (0,), (0, 3), (), (2, 3), (1, 3))
CALLS = (
    ((), {}), ((0,), {}), ((-1,), {}), ((), {"correction": 0}), ((), {"correction": 2}),
    ((False,), {}), ((0, False), {}), ((0, True), {}), ((), {"unbiased": False}),
    (((0,),), {"correction": None}),
)  # fmt: skip


@pytest.mark.parametrize("name", ["std", "var", "std_mean", "var_mean"])
def test_refused_where_eager_warns(name):
    seen = set()
    for shape in SHAPES:
        for args, kwargs in CALLS:

            def spread(x, args=args, kwargs=kwargs):
                return getattr(torch, name)(x, *args, **kwargs)

            x = torch.zeros(shape)
            with warnings.catch_warnings(record=True) as given:
                warnings.simplefilter("always")
                spread(x)
            refused = False
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    aot.aot_function(spread, aot.run_as_is)(x)
                except aot.Unsupported:
                    refused = True
            assert refused == bool(given), (shape, args, kwargs)
            seen.add(refused)
    assert seen == {False, True}
