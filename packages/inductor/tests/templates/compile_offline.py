"""Compile templates to cubins with no GPU, and print what each needs as JSON.

Run as a program, in a process where Triton's interpreter is off.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from flambeau_inductor.codegen.triton.build import compile_offline
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Load, Loop, Point, Store
from flambeau_inductor.templates.attention.flash_backward import (
    Backward,
    backward_blocks,
    keys_kernel,
    queries_kernel,
)
from flambeau_inductor.templates.attention.flash_forward import attention_kernel
from flambeau_inductor.templates.attention.problem import Attention, Blocks, Heads, Rows, blocks_for
from flambeau_inductor.templates.convolution import tiles_for
from flambeau_inductor.templates.gemm.epilogue import epilogue_of
from flambeau_inductor.templates.gemm.kernel import tile_for
from flambeau_inductor.templates.gemm.problem import Groups, Matrix, Packed, Product, Window
from flambeau_inductor.templates.gemm.split_k import partial_kernel
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.templates.selection.races import product_kernel
from flambeau_inductor.tuning import MEASURED

BF16, F32 = torch.bfloat16, torch.float32
BEFORE = (
    "large",
    "middle",
    "ragged",
    "float",
    "parts",
    "heads64",
    "heads128",
    "windows",
    "windows_few",
    "windows_float",
    "depthwise",
    "experts",
    "weights",
    "packed",
    "packed_half",
)
"""Kernels that are also for devices before sm_90: they take turns, or FLAMBEAU_SWEEPS is set."""
M, N, K = 512, 768, 1024


def products() -> list[TritonKernel]:
    """A plain tile, a ragged one, one in parts, one of float32, each with relu behind it."""
    found = []
    for name, tile, dtype, k in (
        ("large", GemmTile(128, 256, 64, 8, 4), BF16, K),
        ("middle", GemmTile(128, 128, 64, 4, 4), BF16, K),
        ("ragged", GemmTile(64, 64, 64, 4, 4), BF16, K + 3),
        ("float", GemmTile(64, 64, 32, 4, 3), F32, K),
        ("described", GemmTile(128, 128, 64, 4, 5, described=True), BF16, K + 8),
        ("resident", GemmTile(128, 256, 64, 8, 3, described=True, resident=1), BF16, K),
        ("resident2", GemmTile(128, 128, 64, 4, 3, described=True, resident=2), BF16, K),
    ):
        at = Var("x0")
        body = (Load("p", at, dtype), Point("neg", (0,), dtype), Store("out", at, 1))
        loop = Loop("after", (Axis("x0", M * N),), (), body)
        product = Product(Matrix("a", (0, k, 1)), Matrix("b", (0, 1, k)), (1, M, N, k), dtype)
        dtypes = dict.fromkeys(("a", "b", "p", "out"), dtype)
        numels = dict.fromkeys(dtypes, 1 << 20)
        epilogue = epilogue_of(loop, "p", (1, M, N))
        found.append(product_kernel(product, epilogue, tile, (dtypes, numels), name))
    product = Product(Matrix("a", (0, K, 1)), Matrix("b", (0, N, 1)), (1, M, N, K), BF16)
    dtypes = {"a": BF16, "b": BF16, "sums": F32}
    tile = GemmTile(64, 64, 64, 4, 4, parts=4)
    numels = dict.fromkeys(dtypes, 1 << 20)
    return [*found, partial_kernel(product, tile, "sums", (dtypes, numels), "parts")]


def packed() -> list[TritonKernel]:
    """A vector, and five, by a matrix of four bits, with relu behind it."""
    found = []
    for name, rows, dtype in (("packed", 1, BF16), ("packed_half", 5, torch.float16)):
        k, scales = 4096, Matrix("scales", (0, 1, 32))
        words = Matrix("words", (0, 1, k // 8))
        product = Product(
            Matrix("a", (0, k, 1)), words, (1, rows, N, k), dtype, packed=Packed(scales, 128, 8)
        )
        body = (Load("p", Var("x0"), dtype), Point("neg", (0,), dtype), Store("out", Var("x0"), 1))
        epilogue = epilogue_of(Loop("after", (Axis("x0", rows * N),), (), body), "p", (1, rows, N))
        dtypes = dict.fromkeys(("a", "p", "scales", "out"), dtype) | {"words": torch.uint8}
        buffers = dtypes, dict.fromkeys(dtypes, 1 << 20)
        found.append(product_kernel(product, epilogue, tile_for(product, MEASURED), buffers, name))
    return found


def convolutions() -> list[TritonKernel]:
    """3 x 3 over 64 channels, plain and with described weights; over 3; of float32 by 5 x 5."""
    found = []
    for name, tile, dtype, channels, size in (
        ("windows", GemmTile(128, 64, 64, 4, 4), BF16, 64, 3),
        ("windows_wide", GemmTile(128, 256, 64, 8, 3, described=True), BF16, 64, 3),
        ("windows_few", GemmTile(64, 64, 32, 4, 4), BF16, 3, 7),
        ("windows_float", GemmTile(64, 64, 32, 4, 3), F32, 40, 5),
    ):
        images, wide, out = 4, 56, 256
        window = Window(
            channels, (wide, wide), (wide, wide), (size, size), (1, 1), (size // 2, size // 2),
            (1, 1), (wide * wide * channels, 1, wide * channels, channels),
            (1, size * channels, channels),
        )  # fmt: skip
        rows, k = images * wide * wide, size * size * channels
        product = Product(
            Matrix("a", (0, 0, 0)), Matrix("b", (0, 1, k)), (1, rows, out, k), dtype,
            tf32=True, window=window,
        )  # fmt: skip
        at = Var("x0") * out + Var("x1")
        body = (Load("p", at, dtype), Load("more", at, dtype), Point("add", (0, 1), dtype))
        loop = Loop("after", (Axis("x0", rows), Axis("x1", out)), (), (*body, Store("out", at, 2)))
        dtypes = dict.fromkeys(("a", "b", "p", "more", "out"), dtype)
        numels = dict.fromkeys(dtypes, 1 << 24)
        epilogue = epilogue_of(loop, "p", (1, rows, out))
        found.append(product_kernel(product, epilogue, tile, (dtypes, numels), name))
    return [*found, depthwise()]


def depthwise() -> TritonKernel:
    """7 x 7 over 96 channels."""
    wide, channels, strides = 56, 96, (56 * 56 * 96, 1, 56 * 96, 96)
    window = Window(
        channels, (wide, wide), (wide, wide), (7, 7), (1, 1), (3, 3), (1, 1), strides,
        (0, 7 * channels, channels), True,
    )  # fmt: skip
    rows = 4 * wide * wide
    sizes = (1, rows, channels, 49)
    product = Product(Matrix("a", (0, 0, 0)), Matrix("b", (0, 0, 1)), sizes, BF16, window=window)
    body = (Load("p", Var("x0"), BF16), Point("neg", (0,), BF16), Store("out", Var("x0"), 1))
    epilogue = epilogue_of(
        Loop("after", (Axis("x0", rows * channels),), (), body), "p", (1, rows, channels)
    )
    dtypes = dict.fromkeys(("a", "b", "p", "out"), BF16)
    numels = dict.fromkeys(dtypes, 1 << 24)
    tile = next(tile for tile in tiles_for(product, MEASURED) if tile.rows == 32)
    return product_kernel(product, epilogue, tile, (dtypes, numels), "depthwise")


def grouped() -> list[TritonKernel]:
    """Eight groups of rows, and eight that share the inner dimension, with relu behind them."""
    found = []
    for name, kind, tile in (
        ("experts", "rows", GemmTile(128, 128, 64, 4, 4)),
        ("experts_wide", "rows", GemmTile(128, 256, 64, 8, 4, described=True)),
        ("weights", "inner", GemmTile(128, 128, 64, 4, 4)),
        ("weights_wide", "inner", GemmTile(128, 256, 64, 8, 4, described=True)),
    ):
        tokens = 4096
        ends = Groups(Matrix("ends", (0, 0, 1)), 8, kind)  # type: ignore[arg-type]
        a, b, sizes = Matrix("a", (0, K, 1)), Matrix("b", (N * K, 1, K)), (1, tokens, N, K)
        if kind == "inner":
            a, b, sizes = Matrix("a", (0, 1, M)), Matrix("b", (0, N, 1)), (8, M, N, tokens)
        product = Product(a, b, sizes, BF16, groups=ends)
        points = sizes[0] * sizes[1] * N
        body = (Load("p", Var("x0"), BF16), Point("neg", (0,), BF16), Store("out", Var("x0"), 1))
        epilogue = epilogue_of(Loop("after", (Axis("x0", points),), (), body), "p", sizes[:3])
        dtypes = dict.fromkeys(("a", "b", "p", "out"), BF16) | {"ends": torch.int32}
        numels = dict.fromkeys(dtypes, 1 << 24)
        found.append(product_kernel(product, epilogue, tile, (dtypes, numels), name))
    return found


def attentions() -> list[TritonKernel]:
    """Of heads 64 and 128 wide, plain and causal, with a bias."""
    found = []
    for name, width, blocks, causal in (
        ("heads64", 64, Blocks(128, 64, 4, 3), False),
        ("heads128", 128, Blocks(128, 64, 8, 3), True),
    ):
        strides = (4 * 256 * width, 256 * width, width, 1)
        at = {each: Heads(each, strides) for each in ("q", "k", "v", "out")}
        bias = None if causal else Heads("bias", (256, 0, 0, 1))
        sizes = (2, 4, 4, 256, 256, width, width)
        attention = Attention(
            at["q"], at["k"], at["v"], at["out"], bias, sizes, BF16, causal, 0.125
        )
        dtypes = dict.fromkeys((*at, "bias"), BF16)
        numels = dict.fromkeys(dtypes, 1 << 20)
        found.append(attention_kernel(attention, blocks, (dtypes, numels), name))
    return found


def gradients() -> list[TritonKernel]:
    """Of heads 64 and 128 wide, causal, with the blocks that are tried first on sm_90."""
    found = []
    for width in (64, 128):
        strides = (4 * 1024 * width, 1024 * width, width, 1)
        at = {n: Heads(n, strides) for n in ("q", "k", "v", "out", "grad", "dq", "dk", "dv")}
        rows = {n: Rows(n, (4096, 1024, 1), 1024) for n in ("sums", "delta")}
        sizes = (2, 4, 4, 1024, 1024, width, width)
        forward = Attention(
            at["q"], at["k"], at["v"], at["out"], None, sizes, BF16, True, 0.125, rows["sums"]
        )
        grads = at["dq"], at["dk"], at["dv"]
        backward = Backward(forward, at["grad"], rows["delta"], grads)
        dtypes = dict.fromkeys(at, BF16) | dict.fromkeys(rows, F32)
        numels = dict.fromkeys(dtypes, 1 << 20)
        keys, queries = backward_blocks(forward, described=True)[0]
        found.append(keys_kernel(backward, keys, (dtypes, numels), f"keys{width}"))
        found.append(queries_kernel(backward, queries, (dtypes, numels), f"queries{width}"))
        blocks = blocks_for(forward, described=True)[0]
        found.append(attention_kernel(forward, blocks, (dtypes, numels), f"forward{width}"))
    return found


SPILLED = {"keys128": 96}
"""Bytes of a thread that may be in memory: with these blocks it was measured to be the fastest."""


def registers(name: str, cubin: bytes, folder: Path) -> int:
    """Registers of a thread, by the tool that comes with Triton; spilled ones are an error."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    tool = triton.knobs.nvidia.cuobjdump.path
    text = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", text.stdout)
    assert found is not None and int(found.group(2)) <= SPILLED.get(name, 0), text.stdout
    return int(found.group(1))


def main(capabilities: list[int]) -> None:
    """Compile all for all capabilities."""
    report = []
    with tempfile.TemporaryDirectory() as folder:
        kernels = [*products(), *packed(), *convolutions(), *grouped(), *attentions(), *gradients()]
        for number, kernel in enumerate(kernels):
            own = capabilities if kernel.name in BEFORE else [c for c in capabilities if c >= 90]
            if os.environ.get("FLAMBEAU_SWEEPS") != "1":
                own = own[number % len(own) :][:1]
            path = Path(folder) / f"{kernel.name}.py"
            path.write_text(module_text([kernel.source]))
            for capability in own:
                compiled = compile_offline(path, kernel, capability)
                ptx = compiled.asm["ptx"]
                report.append(
                    {
                        "kernel": kernel.name,
                        "capability": capability,
                        "cubin": len(compiled.asm["cubin"]),
                        "shared": compiled.metadata.shared,
                        "local": ".local" in ptx,
                        "tensor_units": "wgmma" in ptx or "mma.sync" in ptx,
                        "described": "cp.async.bulk.tensor" in ptx,
                        "registers": registers(kernel.name, compiled.asm["cubin"], Path(folder)),
                    }
                )
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]])
