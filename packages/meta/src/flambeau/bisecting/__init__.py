"""Bisection: the layer, and the step within it, that makes an answer wrong."""
