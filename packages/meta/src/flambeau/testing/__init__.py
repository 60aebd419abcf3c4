"""Two runs of a program: isolated, compared, verified."""
