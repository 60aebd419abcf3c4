"""The programs, by field. Each imports its library itself: its process needs no other."""
