"""Events: what the stages publish, and its subscribers."""
