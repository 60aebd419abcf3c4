"""The FX graph of a frame, its symbolic shapes, and functions that graphs call."""
