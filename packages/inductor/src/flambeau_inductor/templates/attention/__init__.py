"""Flash attention as Triton templates, forward and backward."""
