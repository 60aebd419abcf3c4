"""Runtime of GPUs: launches, binaries, CUDA graphs, memory pools."""
