"""Interception of torch calls above autograd, during tracing."""
