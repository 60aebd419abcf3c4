"""Tracing: a program and example inputs in, one functional graph with its derivatives out."""
