"""Which library calls a template replaces: autotuning, heuristics, tuning data."""
