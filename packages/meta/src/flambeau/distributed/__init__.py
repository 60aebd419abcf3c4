"""Several processes: gradient buckets, and agreement between ranks.

In: captured graphs, inside the forward of a `DistributedDataParallel` or with collectives of their
own; what ranks are to have alike. Out: the same graphs in parts, compiled by one rank where that is
wanted, a word where ranks differ, and an error where they would wait for each other for ever.
Invariant: nothing here sends a tensor; notes are left in the store of the process group.
"""

from flambeau.distributed.buckets import BucketLimits, by_buckets, split
from flambeau.distributed.collective_order import CollectivesDiffer, in_agreement
from flambeau.distributed.ranks import RanksDisagree, compare_ranks
from flambeau.distributed.replicas import verify_ranks

__all__ = [
    "BucketLimits", "CollectivesDiffer", "RanksDisagree", "by_buckets", "compare_ranks",
    "in_agreement", "split", "verify_ranks",
]  # fmt: skip
