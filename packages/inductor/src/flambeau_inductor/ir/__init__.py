"""Intermediate representations: tensor graph, loop IR, scheduled program."""
