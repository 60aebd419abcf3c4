"""Time of `flambeau_prims.lower`, and its growth with the graph.

    python benchmarks/stages/lowering.py [--layers 3 6 12] [--repeats 5] [--profile]

In: the forward of transformers' GPT-2 of some depths (from its configuration, random weights),
captured and made functional: a graph of ATen operations. Out: the median of the seconds that
`lower` takes, and microseconds a node of the result. Invariant: how the graph came about is not
timed; nothing is kept from one run to the next.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

import flambeau_aot
import flambeau_prims as prims
from torch import fx

import flambeau
from benchmarks.zoo.torchvision_cpu import torchvision

TOKENS = 64


def captured(layers: int) -> tuple[fx.GraphModule, list[Any]]:
    """GPT-2's forward as one graph of ATen operations, and its inputs."""
    torchvision()  # transformers imports it where it finds one
    import transformers  # slow to import

    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=layers, use_cache=False)
    model = transformers.GPT2LMHeadModel(config).eval()
    graphs: list[tuple[fx.GraphModule, list[Any]]] = []

    def keep(gm: fx.GraphModule, inputs: list[Any], info: Any) -> Any:
        graphs.append((gm, inputs))
        return flambeau_aot.run_as_is(gm, inputs, info)

    def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
        return flambeau_aot.compile(gm, inputs, keep, decompositions={})

    with torch.no_grad():
        flambeau.compile(model, backend=backend)(torch.randint(50257, (1, TOKENS)))
    if len(graphs) != 1:
        raise RuntimeError(f"GPT-2 became {len(graphs)} graphs")
    return graphs[0]


def measure(layers: int, repeats: int) -> tuple[float, int, int]:
    """Median seconds, nodes before, nodes after."""
    gm, inputs = captured(layers)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        lowered = prims.lower(gm, inputs)
        seconds.append(time.perf_counter() - start)
    left = prims.verify(lowered)
    if left:
        print(f"not decomposed: {dict(left)}")
    return statistics.median(seconds), len(gm.graph.nodes), len(lowered.graph.nodes)


def main(argv: Sequence[str]) -> int:
    """Print a row for each depth."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 6, 12])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="profile the deepest instead")
    options = parser.parse_args(argv)
    if options.profile:
        gm, inputs = captured(max(options.layers))
        prims.lower(gm, inputs)
        with cProfile.Profile() as profile:
            prims.lower(gm, inputs)
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        return 0
    print("layers  nodes in  nodes out  seconds  us a node out")
    for layers in options.layers:
        seconds, before, after = measure(layers, options.repeats)
        print(f"{layers:6}  {before:8}  {after:9}  {seconds:7.3f}  {seconds / after * 1e6:13.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
