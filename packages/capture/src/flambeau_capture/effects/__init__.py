"""Side effects of the captured program, replayed after the graph."""
