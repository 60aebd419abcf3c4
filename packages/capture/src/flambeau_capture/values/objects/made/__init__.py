"""Classes and objects that the frame makes."""
