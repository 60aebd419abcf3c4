"""Template selection: autotuning, heuristics, tuning data."""
