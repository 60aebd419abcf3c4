"""One frame: whether it is captured, how often, and its conversion."""
