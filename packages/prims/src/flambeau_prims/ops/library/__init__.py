"""Library primitives: those that a vendor's library computes."""
