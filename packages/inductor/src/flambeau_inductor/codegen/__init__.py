"""Kernels as text: C++ for CPUs, Triton for GPUs, from the same loops."""
