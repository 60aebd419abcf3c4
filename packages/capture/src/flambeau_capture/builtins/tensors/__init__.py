"""Torch functions and operators on tensors."""
