"""Time of a call of one operator, compiled and in eager, on one thread, and its ratio.

    python -m benchmarks.operations.operators [--size 1048576] [--only NAME,...]
        [--dtypes float32,...] [--families pointwise,...] [--out benchmarks/results]

In: torch's operator database (elementwise functions and reductions) and the table `STRUCTURED` of
what moves elements, normalises or pools. Out: `operators-cpu.md`, what is slower than eager by more
than 5 %, ranked, and how the ratios of all are spread. Invariant: calls of both are interleaved in
one process and the least of each counts; what looks slower is measured again, longer, before it is
counted; what the compiler refuses is named, not counted.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
import torch.nn.functional as F
from flambeau_prims.sweep.database import by_name, has_gradient, takes

import flambeau

Function = Callable[..., object]
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "uint8")
LIMIT = 1.05


@dataclass(frozen=True)
class Case:
    """A call to measure; `trains`: with the gradients of its first input."""

    family: str
    name: str
    function: Function
    inputs: Callable[[torch.dtype, int], tuple[torch.Tensor, ...]]
    dtypes: Callable[[torch.dtype], bool] = lambda dtype: True
    trains: bool = False


def filled(
    shape: tuple[int, ...], dtype: torch.dtype, low: float = 0.05, high: float = 0.95
) -> torch.Tensor:
    """Numbers between the two; integers are small and positive."""
    if not dtype.is_floating_point:
        return torch.randint(1, 7, shape, dtype=dtype)
    return (torch.rand(shape, dtype=torch.float64) * (high - low) + low).to(dtype)


def square(size: int) -> tuple[int, int]:
    """Sides of a matrix of `size` elements, powers of two."""
    half = 1 << ((size.bit_length() - 1) // 2)
    return half, size // half


def images(size: int) -> tuple[int, int, int, int]:
    """A batch of images with `size` elements."""
    side = 1 << max((size.bit_length() - 1) // 2 - 4, 1)
    return max(size // (32 * side * side), 1), 32, side, side


def matrices(count: int) -> Callable[[torch.dtype, int], tuple[torch.Tensor, ...]]:
    return lambda dtype, size: tuple(filled(square(size), dtype) for _ in range(count))


def pictures(dtype: torch.dtype, size: int) -> tuple[torch.Tensor, ...]:
    return (filled(images(size), dtype),)


def floating(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


def _pointwise() -> Iterator[Case]:
    for name, entry in by_name().items():
        kind = type(entry).__name__
        if kind not in ("UnaryUfuncInfo", "BinaryUfuncInfo") or "jiterator" in name:
            continue
        two = kind == "BinaryUfuncInfo"
        low, high = (None, None) if two else entry.domain
        # eager leaves out the exponentials of an elu, say, where no element is negative
        reach = (0.05, 0.95) if two else (-2.0, 2.0)
        reach = (reach[0] if low is None else low + 0.05, reach[1] if high is None else high - 0.05)
        if low is not None and high is None:
            reach = (low + 0.05, low + 0.95)

        def inputs(
            dtype: torch.dtype, size: int, two: bool = two, reach: tuple[float, float] = reach
        ) -> tuple[torch.Tensor, ...]:
            return tuple(filled((size,), dtype, *reach) for _ in range(1 + two))

        yield Case("pointwise", name, entry.op, inputs, lambda d, e=entry: takes(e, d))
        trains = lambda d, e=entry: has_gradient(e, d)  # noqa: E731
        yield Case("pointwise backward", name, entry.op, inputs, trains, trains=True)


def _reductions() -> Iterator[Case]:
    names = [n for n, e in by_name().items() if type(e).__name__ == "ReductionOpInfo"]
    for name in [*names, "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "logsumexp"]:
        if "masked" in name or "hash" in name:
            continue
        entry = by_name().get(name)
        if entry is None:
            continue
        dims = (0, 1) if name.startswith(("cum", "logcum", "logsum")) else (None, 0, 1)
        for dim in dims:
            function = entry.op if dim is None else lambda x, e=entry, d=dim: e.op(x, dim=d)
            label = name if dim is None else f"{name} of dim {dim}"
            yield Case("reductions", label, function, matrices(1), lambda d, e=entry: takes(e, d))
            trains = lambda d, e=entry: has_gradient(e, d)  # noqa: E731
            yield Case("reductions backward", label, function, matrices(1), trains, trains=True)


def positions(rows: bool) -> Callable[[torch.dtype, int], tuple[torch.Tensor, ...]]:
    """Two matrices, and positions along the first axis: one for each row, or for each element."""

    def made(dtype: torch.dtype, size: int) -> tuple[torch.Tensor, ...]:
        x = filled(square(size), dtype)
        shape = (x.shape[0],) if rows else tuple(x.shape)
        return x, torch.randint(0, min(x.shape), shape), filled(square(size), dtype)

    return made


def masks(dtype: torch.dtype, size: int) -> tuple[torch.Tensor, ...]:
    x = filled(square(size), dtype)
    return x, torch.rand(x.shape) < 0.5, filled(square(size), dtype)


def labels(dtype: torch.dtype, size: int) -> tuple[torch.Tensor, ...]:
    x = filled(square(size), dtype)
    return x, torch.randint(0, x.shape[1], (x.shape[0],))


MOVES: dict[str, Function] = {
    "clone": lambda x: x.clone(),
    "transpose": lambda x: x.t().contiguous(),
    "flip 0": lambda x: x.flip(0),
    "flip 1": lambda x: x.flip(1),
    "flip 0 1": lambda x: x.flip(0, 1),
    "rot90": lambda x: torch.rot90(x),
    "roll": lambda x: torch.roll(x, 5),
    "roll 0": lambda x: torch.roll(x, 3, 0),
    "roll 1": lambda x: torch.roll(x, 3, 1),
    "roll 0 1": lambda x: torch.roll(x, (3, 5), (0, 1)),
    "tril": lambda x: torch.tril(x),
    "triu": lambda x: torch.triu(x),
    "repeat": lambda x: x[: x.shape[0] // 4].repeat(2, 2),
    "tile": lambda x: torch.tile(x[:, : x.shape[1] // 4], (1, 4)),
    "repeat_interleave 1": lambda x: x[:, : x.shape[1] // 4].repeat_interleave(4, 1),
    "repeat_interleave 0": lambda x: x[: x.shape[0] // 4].repeat_interleave(4, 0),
    "expand": lambda x: x[:1].expand(x.shape).contiguous(),
    "expand columns": lambda x: x[:, :1].expand(x.shape).contiguous(),
    "narrow": lambda x: x[:, 3:-5].clone(),
    "every second": lambda x: x[:, ::2].clone(),
    "every second row": lambda x: x[::2].clone(),
    "pad": lambda x: F.pad(x, (3, 5, 1, 1)),
    "pad rows": lambda x: F.pad(x, (0, 0, 1, 1), value=2),
    "cast to float32": lambda x: x.to(torch.float32),
    "cast to float64": lambda x: x.to(torch.float64),
    "cast to bfloat16": lambda x: x.to(torch.bfloat16),
    "cast to float16": lambda x: x.to(torch.float16),
    "cast to int64": lambda x: x.to(torch.int64),
    "cast to uint8": lambda x: x.to(torch.uint8),
    "cast to bool": lambda x: x.to(torch.bool),
    "clamp": lambda x: x.clamp(2, 5),
    "addition of a row": lambda x: x + x[0],
    "addition of a column": lambda x: x + x[:, :1],
    "addition of a transpose": lambda x: x + x[: min(x.shape), : min(x.shape)].t().repeat(
        x.shape[0] // min(x.shape), x.shape[1] // min(x.shape)),
    "diff": lambda x: torch.diff(x),
    "one_hot": lambda x: F.one_hot(x[: x.shape[0] // 8, 0].to(torch.int64), 1024),
    "argmax": lambda x: x.argmax(),
    "full_like": lambda x: torch.full_like(x, 3),
    "arange": lambda x: torch.arange(x.numel(), dtype=x.dtype if x.dtype.itemsize > 1 else None),
    "unfold": lambda x: x.unfold(1, 4, 4).contiguous(),
}  # fmt: skip
JOINS: dict[str, Function] = {
    "cat 0": lambda x, y: torch.cat((x, y)),
    "cat 1": lambda x, y: torch.cat((x, y), 1),
    "cat of three": lambda x, y: torch.cat((x[:, :100], y[:, 100:300], x[:, 300:]), 1),
    "cat of eight": lambda x, y: torch.cat((x, y) * 4, 1),
    "stack 0": lambda x, y: torch.stack((x, y)),
    "stack 1": lambda x, y: torch.stack((x, y), 1),
    "stack 2": lambda x, y: torch.stack((x, y), -1),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=2),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=2),
    "mse_loss": lambda x, y: F.mse_loss(x, y),
    "l1_loss": lambda x, y: F.l1_loss(x, y),
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y),
    "huber_loss": lambda x, y: F.huber_loss(x, y),
    "binary_cross_entropy": lambda x, y: F.binary_cross_entropy(x, y),
    "binary_cross_entropy_with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y),
    "kl_div": lambda x, y: F.kl_div(x, y),
    "poisson_nll_loss": lambda x, y: F.poisson_nll_loss(x, y),
    "gaussian_nll_loss": lambda x, y: F.gaussian_nll_loss(x, y, y),
    "hinge_embedding_loss": lambda x, y: F.hinge_embedding_loss(x, y),
    "soft_margin_loss": lambda x, y: F.soft_margin_loss(x, y),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y),
    "pairwise_distance": lambda x, y: F.pairwise_distance(x, y),
    "dist": lambda x, y: torch.dist(x, y),
    "glu": lambda x, y: F.glu(x),
    "abs of complex": lambda x, y: torch.complex(x, y).abs(),
    "angle of complex": lambda x, y: torch.complex(x, y).angle(),
    "abs of rfft": lambda x, y: torch.fft.rfft(x).abs(),
}
AT_ROWS: dict[str, Function] = {
    "index_select 0": lambda x, at, y: x.index_select(0, at),
    "index_select 1": lambda x, at, y: x.index_select(1, at),
    "index 0": lambda x, at, y: x[at],
    "index 1": lambda x, at, y: x[:, at],
    "index_copy": lambda x, at, y: x.index_copy(0, at, y),
    "index_add 0": lambda x, at, y: x.index_add(0, at, y),
    "index_add 1": lambda x, at, y: x.index_add(1, at, y[:, : at.numel()]),
    "index_fill": lambda x, at, y: x.index_fill(0, at, 2),
    "index_put": lambda x, at, y: x.index_put((at,), y),
    "index_put added": lambda x, at, y: x.index_put((at,), y, accumulate=True),
    "embedding": lambda x, at, y: F.embedding(at, x),
}
AT_ELEMENTS: dict[str, Function] = {
    "gather 0": lambda x, at, y: x.gather(0, at),
    "gather 1": lambda x, at, y: x.gather(1, at),
    "take": lambda x, at, y: x.take(at),
    "take_along_dim": lambda x, at, y: x.take_along_dim(at, 1),
    "scatter 0": lambda x, at, y: x.scatter(0, at, y),
    "scatter 1": lambda x, at, y: x.scatter(1, at, y),
    "scatter of a number": lambda x, at, y: x.scatter(1, at, 2),
    "scatter_add 0": lambda x, at, y: x.scatter_add(0, at, y),
    "scatter_add 1": lambda x, at, y: x.scatter_add(1, at, y),
    "scatter_reduce amax": lambda x, at, y: x.scatter_reduce(1, at, y, "amax"),
    "scatter_reduce mean": lambda x, at, y: x.scatter_reduce(1, at, y, "mean"),
}
MASKED: dict[str, Function] = {
    "where": lambda x, m, y: torch.where(m, x, y),
    "where of a number": lambda x, m, y: torch.where(m, x, 2),
    "masked_fill": lambda x, m, y: x.masked_fill(m, 2),
}
ROWS: dict[str, Function] = {
    "softmax 0": lambda x: F.softmax(x, 0),
    "softmax 1": lambda x: F.softmax(x, 1),
    "softmin": lambda x: F.softmin(x, 1),
    "log_softmax 0": lambda x: F.log_softmax(x, 0),
    "log_softmax 1": lambda x: F.log_softmax(x, 1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[1:]),
    "normalize": lambda x: F.normalize(x),
    "batch_norm of rows": lambda x: F.batch_norm(x, None, None, training=True),
    "renorm": lambda x: torch.renorm(x, 2, 0, 1.0),
    "norm of order 1": lambda x: torch.linalg.vector_norm(x, 1, 1),
    "norm of order 3": lambda x: torch.linalg.vector_norm(x, 3, 1),
    "norm of order inf": lambda x: torch.linalg.vector_norm(x, float("inf"), 1),
}
LABELLED: dict[str, Function] = {
    "cross_entropy": lambda x, y: F.cross_entropy(x, y),
    "cross_entropy smoothed": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "nll_loss": lambda x, y: F.nll_loss(x, y),
    "multi_margin_loss": lambda x, y: F.multi_margin_loss(x, y),
}
IMAGES: dict[str, Function] = {
    "pad constant": lambda x: F.pad(x, (1, 1, 1, 1)),
    "pad reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pad replicate": lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"),
    "pad circular": lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool2d 3 2 1": lambda x: F.max_pool2d(x, 3, 2, 1),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "avg_pool2d 3 1 1": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "max_pool1d": lambda x: F.max_pool1d(x.flatten(2), 2),
    "avg_pool1d": lambda x: F.avg_pool1d(x.flatten(2), 2),
    "lp_pool2d": lambda x: F.lp_pool2d(x, 2.0, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 4),
    "adaptive_avg_pool2d 1": lambda x: F.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 4),
    "upsample nearest": lambda x: F.interpolate(x, scale_factor=2),
    "upsample bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "upsample bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 4),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 4),
    "im2col": lambda x: F.unfold(x, 3, padding=1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "batch_norm of inference": lambda x: F.batch_norm(x, x[0, :, 0, 0], x[0, :, 0, 1]),
    "group_norm": lambda x: F.group_norm(x, 4),
    "instance_norm": lambda x: F.instance_norm(x),
    "local_response_norm": lambda x: F.local_response_norm(x, 5),
    "permute": lambda x: x.permute(0, 2, 3, 1).contiguous(),
    "permute of the first": lambda x: x.permute(1, 0, 2, 3).contiguous(),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "grid_sample": lambda x: F.grid_sample(
        x, x[:, :2].permute(0, 2, 3, 1) * 2 - 1, align_corners=False),
    "stft": lambda x: torch.stft(x.flatten()[:65536], 256, return_complex=True).abs(),
}  # fmt: skip
STRUCTURED = (
    ("moves", MOVES, matrices(1), False),
    ("joins", JOINS, matrices(2), False),
    ("rows at positions", AT_ROWS, positions(True), False),
    ("elements at positions", AT_ELEMENTS, positions(False), False),
    ("masks", MASKED, masks, False),
    ("rows", ROWS, matrices(1), True),
    ("labels", LABELLED, labels, True),
    ("images", IMAGES, pictures, False),
)


def cases() -> Iterator[Case]:
    """All that is measured; those of the table with gradients too, where a dtype has them."""
    for family, table, inputs, floats in STRUCTURED:
        for name, function in table.items():
            kinds = floating if floats else (lambda dtype: True)
            yield Case(family, name, function, inputs, kinds)
            yield Case(f"{family} backward", name, function, inputs, floating, trains=True)
    yield from _reductions()
    yield from _pointwise()


def call_of(case: Case, function: Function) -> Function:
    """The call that is measured: of the function, or with gradients."""
    if not case.trains:
        return function

    def trained(x: torch.Tensor, *others: torch.Tensor) -> object:
        y = function(x, *others)
        while isinstance(y, tuple):
            y = y[0]
        assert isinstance(y, torch.Tensor)
        return torch.autograd.grad(y, x, torch.ones((), dtype=y.dtype).expand(y.shape))

    return trained


def least(calls: list[Function], inputs: tuple[torch.Tensor, ...], spent: float) -> list[float]:
    """The shortest call of each, interleaved, within `spent` seconds, at least five of each."""
    found = [float("inf")] * len(calls)
    until, rounds = time.perf_counter() + spent, 0
    while rounds < 5 or (time.perf_counter() < until and rounds < 2000):
        rounds += 1
        for at, call in enumerate(calls):
            started = time.perf_counter()
            call(*inputs)
            found[at] = min(found[at], time.perf_counter() - started)
    return found


def measured(case: Case, dtype: torch.dtype, size: int) -> tuple[float, float]:
    """Microseconds in eager and compiled; what eager refuses raises, so does what falls back."""
    torch.manual_seed(0)
    inputs = case.inputs(dtype, size)
    if case.trains:
        inputs = (inputs[0].requires_grad_(), *inputs[1:])

    def fresh(*given: torch.Tensor) -> object:
        return case.function(*given)

    calls = [call_of(case, case.function), call_of(case, flambeau.compile(fresh))]
    with torch.set_grad_enabled(case.trains):
        calls[0](*inputs)
        for _ in range(3):
            calls[1](*inputs)
        eager, made = least(calls, inputs, 0.06)
        if made > LIMIT * eager:
            eager, made = (min(p) for p in zip(least(calls, inputs, 0.4), (eager, made)))
    return eager * 1e6, made * 1e6


def page(rows: list[dict[str, object]], size: int) -> str:
    """The report."""
    done = [r for r in rows if "ratio" in r]
    slower = sorted((r for r in done if r["ratio"] > LIMIT), key=lambda r: -r["ratio"])  # type: ignore[operator]
    families: dict[str, list[float]] = {}
    for r in done:
        families.setdefault(str(r["family"]), []).append(float(r["ratio"]))  # type: ignore[arg-type]
    lines = [
        f"`python -m benchmarks.operations.operators --size {size}`",
        "",
        f"Calls of one operator on {size} elements, one thread, "
        f"{platform.processor() or platform.machine()} ({torch.backends.cpu.get_cpu_capability()}),"
        f" torch {torch.__version__}, Python {platform.python_version()}.",
        "Ratios are microseconds compiled over microseconds in eager, the least of each.",
        "",
        "| family | calls | geometric mean | slower than 1.05 |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {len(found)} | {geometric_mean(found):.2f} "
            f"| {sum(x > LIMIT for x in found)} |"
            for name, found in families.items()
        ),
        "",
        "Slower than eager by more than 5 %:",
        "",
        "| family | operator | dtype | eager | compiled | ratio |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {r['family']} | {r['name']} | {r['dtype']} | {r['eager']:.1f} | {r['made']:.1f} "
            f"| {r['ratio']:.2f} |"
            for r in slower
        ),
    ]
    refused = Counter(str(r["refused"]) for r in rows if "refused" in r)
    if refused:
        lines += ["", "Not measured: " + "; ".join(f"{n} of {w}" for w, n in refused.items()) + "."]
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--size", type=int, default=1 << 20)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--families", default="")
    arguments.add_argument("--dtypes", default=",".join(DTYPES))
    arguments.add_argument("--rows", type=Path, help="JSON lines, one a call; those in it are kept")
    arguments.add_argument("--out", type=Path)
    a = arguments.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, object]] = []
    if a.rows and a.rows.exists():
        rows = [json.loads(line) for line in a.rows.read_text().splitlines()]
    known = {(r["family"], r["name"], r["dtype"]) for r in rows}
    only, families = set(filter(None, a.only.split(","))), set(filter(None, a.families.split(",")))
    for dtype_name in a.dtypes.split(","):
        dtype = getattr(torch, dtype_name)
        for case in cases():
            key = (case.family, case.name, dtype_name)
            if (only and case.name not in only) or (families and case.family not in families):
                continue
            if key in known or not case.dtypes(dtype):
                continue
            row: dict[str, object] = dict(zip(("family", "name", "dtype"), key))
            try:
                eager, made = measured(case, dtype, a.size)
                row |= {"eager": eager, "made": made, "ratio": made / eager}
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
                row["refused"] = type(error).__name__
            rows.append(row)
            if a.rows:
                with a.rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            if row.get("ratio", 0) > LIMIT:  # type: ignore[operator]
                print(json.dumps(row), flush=True)
    text = page(rows, a.size)
    if a.out:
        (a.out / "operators-cpu.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
