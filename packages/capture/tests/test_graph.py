"""What is written into a graph is Python that runs."""

import torch


def test_classes_of_numbers_as_dtypes(capture, backend, same):
    def made(x):
        return (
            x.to(int),
            x.to(dtype=float),
            torch.zeros(2, dtype=bool),
            torch.tensor([1], dtype=complex),
            x.sum(dtype=float),
            x.to("cpu", int),
        )

    fn = capture(made, nopython=True)
    x = torch.randn(3) * 5
    same(fn(x), made(x))
    assert [one.dtype for one in fn(x)] == [one.dtype for one in made(x)]
    assert len(backend) == 1
