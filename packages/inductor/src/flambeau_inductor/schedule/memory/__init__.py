"""Memory planning: sinking, order, lifetimes, reuse, in-place updates."""
