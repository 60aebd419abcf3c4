"""Vertical and horizontal fusion."""
