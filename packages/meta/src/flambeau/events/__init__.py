"""What the stages publish while they work, and those who keep it."""
