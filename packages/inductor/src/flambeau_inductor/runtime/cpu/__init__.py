"""Runtime of CPUs: packed weights, blocked products, huge pages, random numbers."""
