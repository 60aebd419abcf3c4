"""torch.distributed: collectives, distributed tensors, sharded modules."""
