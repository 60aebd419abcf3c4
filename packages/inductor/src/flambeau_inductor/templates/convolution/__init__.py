"""Convolutions as Triton templates: implicit GEMM and depthwise."""
