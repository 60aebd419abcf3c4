"""The FX graph of a frame and its symbolic shapes."""
