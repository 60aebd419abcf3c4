"""Code generation: C++ for CPUs, Triton for GPUs, from the same loop IR."""
