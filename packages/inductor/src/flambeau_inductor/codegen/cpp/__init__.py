"""C++ code generation, and the toolchain that builds it."""
