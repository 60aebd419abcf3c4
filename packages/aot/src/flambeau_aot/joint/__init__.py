"""Joint tracing: a program and example inputs to one functional graph with derivatives."""
