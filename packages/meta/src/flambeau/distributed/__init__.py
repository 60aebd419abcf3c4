"""Distributed data parallel: gradient buckets, and agreement between ranks.

In: captured graphs, inside the forward of a `DistributedDataParallel`. Out: the same graphs in
parts, and a word where ranks compile different programs.
Invariant: nothing here sends a tensor or waits for another rank.
"""

from flambeau.distributed.buckets import BucketLimits, by_buckets, split
from flambeau.distributed.ranks import RanksDisagree, compare_ranks

__all__ = ["BucketLimits", "RanksDisagree", "by_buckets", "compare_ranks", "split"]
