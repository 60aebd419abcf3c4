"""The model sweep: every architecture that the model libraries can build, captured and judged."""
