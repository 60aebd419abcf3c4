"""Pre-grad passes: Torch IR, before autograd is traced."""
