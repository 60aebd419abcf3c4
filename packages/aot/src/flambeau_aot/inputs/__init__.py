"""Inputs of a program: functional wrappers, synthetic bases, overlap, facts."""
