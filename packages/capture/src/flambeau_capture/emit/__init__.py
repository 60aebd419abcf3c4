"""Code generation: the bytecode that replaces a captured frame."""
