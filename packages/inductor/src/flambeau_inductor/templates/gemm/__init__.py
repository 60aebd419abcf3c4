"""Matrix products as Triton templates: tiles, split-K, TMA, epilogues, grouped products."""
