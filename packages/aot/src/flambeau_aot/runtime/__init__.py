"""Runtime around compiled graphs."""
