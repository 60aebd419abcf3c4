"""Joint graphs as text and pictures."""
