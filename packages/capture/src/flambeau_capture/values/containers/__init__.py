"""Lists, tuples, dicts, sets and slices as values."""
