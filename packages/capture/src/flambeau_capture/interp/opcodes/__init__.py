"""Handlers of opcodes, a family a module, and the registry of them."""
