"""Loop bodies, scheduled programs, and the tensor graph they are made from."""
