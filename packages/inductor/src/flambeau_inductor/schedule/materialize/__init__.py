"""Which values get memory, in which layout."""
