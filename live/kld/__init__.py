"""How far a running server is from its reference: per position, by its quickest route, and as a table."""
