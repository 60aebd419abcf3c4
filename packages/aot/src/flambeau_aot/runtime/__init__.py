"""What runs around compiled graphs at every call."""
