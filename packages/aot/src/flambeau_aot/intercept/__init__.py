"""Interception of torch calls above autograd, while a program is traced."""
