"""FX passes on a graph of primitives."""
