"""Device functions that generated Triton kernels call."""
