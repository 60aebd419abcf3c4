"""Tests of guards."""
