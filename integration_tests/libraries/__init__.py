"""Programs of libraries that use PyTorch, as their documentation has them, in eager and compiled."""
