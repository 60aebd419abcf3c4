"""From generated sources to loaded kernels: code generators, binaries, loaders."""
