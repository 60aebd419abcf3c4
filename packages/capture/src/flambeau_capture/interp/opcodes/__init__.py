"""Opcode handlers, by family."""
