"""Programs of libraries that use PyTorch, as their pages have them, in eager and compiled."""
