"""Passes over Torch IR, before autograd is traced."""
